// Package agenttest runs an agent in a test: the definition and the tools that
// are served in production, with a scripted model, in milliseconds and without
// any server (TEST-1). It is the same workflow, the same state machine and the
// same activities; Temporal is replaced by its test suite and PostgreSQL by a
// store in memory that keeps its promises. Only tests import it.
//
// A Suite is made of a Config, and Run runs the agent on one message:
//
//	suite := agenttest.New(t, agenttest.Config{Definition: def, Tools: tools, Script: script})
//	result := suite.Run("Restart payment-api",
//		agenttest.When(agenttest.PlanWaits(), agenttest.ApproveAs("ann")))
//	result.WantEnd(agent.ReasonFinal)
//	result.WantCalls("restart")
//
// # What happens meanwhile
//
// An Event joins a Moment and the Actions that follow on it. A When holds for one
// occurrence of its moment, a Whenever for all that are left, and a When that
// never came about fails the test.
//
//	moments   PlanWaits  MemoryWaits  Elapsed  ModelCalled  ToolBegins  ToolReturns  BeforeActivity  AfterActivity
//	people    CheckPlan  ApproveAs  DeclineAs  ForgeAs  SendAgain  SendToken  SettleAs  Cancel  Supersede
//	          ConfirmMemoryAs  DeclineMemoryAs  ForgeMemoryAs
//	faults    Crash  DatabaseDown  MemoryDown  EmbedderDown  Fail  Panic
//	others    Wait  Do
//
// A person who approves signs a real token, which the run verifies, binds and
// authorizes as in production: with the built-in policies users confirm the
// writes of their own runs, which is user ann here; give Policies to test others.
// Without any event a plan waits until it expires.
//
// These are the questions that a write should answer before it is served:
//
//	// The answer never came. Is it found out what happened?
//	agenttest.When(agenttest.ToolReturns("restart"), agenttest.Fail(io.ErrUnexpectedEOF))
//	// The worker dies: before the effect, and between the effect and its record.
//	agenttest.When(agenttest.ToolBegins("restart"), agenttest.Crash())
//	agenttest.When(agenttest.ToolReturns("restart"), agenttest.Crash())
//	// The resource changes while the person thinks.
//	agenttest.When(agenttest.PlanWaits(), agenttest.Do(changeIt), agenttest.ApproveAs("ann"))
//
// In each case the effect must have happened exactly once, or provably not at
// all; the system that the tool talks to knows.
//
// # Time
//
// Time is virtual and is skipped while nothing happens, so a plan expires at
// once. Wait, the delays of a Script, and Sleep in the tools of a test pass in
// virtual time too, and count against timeouts and deadlines. What a tool does
// in real time takes real time.
//
// # Memory
//
// An agent with memory recalls what Suite.Remember put there and what earlier runs
// of the Suite left; Result.Recalled is what a run was given, and Suite.Memories
// what is in force. Config.Extractor plays the model that says what can be learned
// from the user's words; without it nothing is found in them, and the facts of tools
// are learned all the same. Result.Learned is what became of it: the memory policy
// decides as in production, and what waits for a person expires unless an event
// confirms it. That takes the days that it takes, and the next run begins after
// them. Decisions that are not believed are among Result.Refusals. Suite.Skip lets
// weeks pass between runs, Suite.Join and Leave say who takes part in groups and
// projects, Suite.Erase erases a user. These and Suite.Memories are about tenant
// acme, whose user ann Suite.Request is from.
//
// # What the model sees
//
// Result.Prompts holds every request, Result.Calls what it was told about each
// call, Result.Story what happened, for a person. A definition keeps the model
// that it names, with its window and its prices; only the answers are scripted.
// Long conversations are not summarized, so that a script is asked what its runs
// ask and no more; Config.Summaries changes that.
package agenttest
