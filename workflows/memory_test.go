package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/workflows"
)

// memories stand in for the activities about memory.
type memories struct {
	propose   func(context.Context, agent.MemoryWriteInput) (agent.MemoryVerdict, error)
	judge     func(agent.MemoryWriteInput) (agent.MemoryVerdict, error)
	settle    func(agent.SettleMemoryInput) (agent.SettledMemory, error)
	learn     func(agent.LearnInput) (agent.LearnOutput, error)
	forget    func(agent.ForgetInput) (agent.ErasureStep, error)
	erase     func(agent.EraseInput) (agent.ErasureStep, error)
	reconcile func(agent.ReconcileInput) (agent.ReconcileReport, error)
	reindex   func(agent.ReindexInput) (agent.ReindexOutput, error)

	mu      sync.Mutex
	settled []string
	started []string
}

func (m *memories) environment(t *testing.T) *testsuite.TestWorkflowEnvironment {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: patience})
	workflows.Register(env)
	for name, fn := range map[string]any{
		agent.ActivityProposeMemory: func(ctx context.Context, in agent.MemoryWriteInput) (agent.MemoryVerdict, error) {
			return m.propose(ctx, in)
		},
		agent.ActivityJudgeMemory: func(_ context.Context, in agent.MemoryWriteInput) (agent.MemoryVerdict, error) {
			if in.Candidate != nil {
				t.Error("the content of a candidate is in the history")
			}
			return m.judge(in)
		},
		agent.ActivitySettleMemory: func(_ context.Context, in agent.SettleMemoryInput) (agent.SettledMemory, error) {
			m.mu.Lock()
			m.settled = append(m.settled, in.Token)
			m.mu.Unlock()
			return m.settle(in)
		},
		agent.ActivityLearn:  func(_ context.Context, in agent.LearnInput) (agent.LearnOutput, error) { return m.learn(in) },
		agent.ActivityForget: func(_ context.Context, in agent.ForgetInput) (agent.ErasureStep, error) { return m.forget(in) },
		agent.ActivityErase:  func(_ context.Context, in agent.EraseInput) (agent.ErasureStep, error) { return m.erase(in) },
		agent.ActivityReconcile: func(_ context.Context, in agent.ReconcileInput) (agent.ReconcileReport, error) {
			return m.reconcile(in)
		},
		agent.ActivityReindex: func(_ context.Context, in agent.ReindexInput) (agent.ReindexOutput, error) { return m.reindex(in) },
	} {
		env.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	env.SetOnChildWorkflowStartedListener(func(info *workflow.Info, _ workflow.Context, _ converter.EncodedValues) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.started = append(m.started, info.WorkflowType.Name+" "+info.WorkflowExecution.ID)
	})
	return env
}

var (
	memoryRoom = agent.MemoryRoom{Scope: request().Scope(), Conversation: "c1", Agent: "demo"}
	memoryIn   = agent.MemoryWriteInput{ID: "m-1", Room: memoryRoom}
)

// decided is a judge or settle that says so.
func decided(state agent.MemoryState) func(agent.MemoryWriteInput) (agent.MemoryVerdict, error) {
	return func(in agent.MemoryWriteInput) (agent.MemoryVerdict, error) {
		return agent.MemoryVerdict{ID: in.ID, State: state}, nil
	}
}

// waits is a judge that leaves the decision to a person for two weeks.
func waits(env *testsuite.TestWorkflowEnvironment, state agent.MemoryState) func(agent.MemoryWriteInput) (agent.MemoryVerdict, error) {
	return func(in agent.MemoryWriteInput) (agent.MemoryVerdict, error) {
		return agent.MemoryVerdict{
			ID: in.ID, State: state, Until: env.Now().Add(14 * 24 * time.Hour), PolicyVersion: "7",
			Rules: []agent.MemoryRule{{ID: "mode.confirm", Text: "asks"}},
		}, nil
	}
}

func (m *memories) write(t *testing.T, env *testsuite.TestWorkflowEnvironment, in agent.MemoryWriteInput) agent.MemoryVerdict {
	t.Helper()
	env.ExecuteWorkflow(agent.WorkflowMemoryWrite, in)
	var verdict agent.MemoryVerdict
	if err := env.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	if err := env.GetWorkflowResult(&verdict); err != nil {
		t.Fatal(err)
	}
	return verdict
}

func decision(env *testsuite.TestWorkflowEnvironment, token string) func() {
	return func() { env.SignalWorkflow(agent.SignalMemoryDecision, agent.Approval{Token: token}) }
}

func TestLTM3ProposedContentStaysOutOfTheHistory(t *testing.T) {
	t.Parallel()
	m := &memories{judge: decided(agent.MemoryStored)}
	var local bool
	m.propose = func(ctx context.Context, in agent.MemoryWriteInput) (agent.MemoryVerdict, error) {
		local = activity.GetInfo(ctx).IsLocalActivity
		if in.Candidate == nil || in.Candidate.Key != "preference.food" {
			t.Errorf("proposed %+v", in)
		}
		return agent.MemoryVerdict{ID: in.ID, State: agent.MemoryProposed}, nil
	}
	in := memoryIn
	in.Candidate = &agent.MemoryCandidate{Key: "preference.food"}
	if verdict := m.write(t, m.environment(t), in); verdict.State != agent.MemoryStored || !local {
		t.Errorf("verdict %+v, local %t", verdict, local)
	}
}

// TestLTM3RejectedIsNotJudged: what the policy refuses at once ends there.
func TestLTM3RejectedIsNotJudged(t *testing.T) {
	t.Parallel()
	m := &memories{judge: func(agent.MemoryWriteInput) (agent.MemoryVerdict, error) {
		t.Error("a rejected candidate was judged")
		return agent.MemoryVerdict{}, nil
	}}
	m.propose = func(_ context.Context, in agent.MemoryWriteInput) (agent.MemoryVerdict, error) {
		return agent.MemoryVerdict{ID: in.ID, State: agent.MemoryRejected}, nil
	}
	in := memoryIn
	in.Candidate = &agent.MemoryCandidate{}
	if verdict := m.write(t, m.environment(t), in); verdict.State != agent.MemoryRejected {
		t.Errorf("verdict %+v", verdict)
	}
}

func TestLTM3NothingToDecideAbout(t *testing.T) {
	t.Parallel()
	for want, in := range map[string]agent.MemoryWriteInput{
		agent.ErrorInvalidRequest: {ID: "m 1", Room: memoryRoom},
		agent.ErrorMemoryMissing:  memoryIn,
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			m := &memories{judge: func(agent.MemoryWriteInput) (agent.MemoryVerdict, error) {
				return agent.MemoryVerdict{}, temporal.NewNonRetryableApplicationError("missing", agent.ErrorMemoryMissing, nil)
			}}
			env := m.environment(t)
			env.ExecuteWorkflow(agent.WorkflowMemoryWrite, in)
			var typed *temporal.ApplicationError
			if err := env.GetWorkflowError(); !errors.As(err, &typed) || typed.Type() != want {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestLTM3Decisions: signals that come before the candidate waits, while it
// waits, many at once, and unreadable ones are all looked at, in order.
func TestLTM3Decisions(t *testing.T) {
	t.Parallel()
	m := &memories{}
	env := m.environment(t)
	m.judge = waits(env, agent.MemoryWaitingConfirmation)
	until := env.Now().Add(14 * 24 * time.Hour)
	m.settle = func(in agent.SettleMemoryInput) (agent.SettledMemory, error) {
		if in.Token == "good" {
			return agent.SettledMemory{MemoryVerdict: agent.MemoryVerdict{ID: in.ID, State: agent.MemoryStored, Record: "r", Version: 2}}, nil
		}
		if in.ID != "m-1" || in.Room != memoryRoom {
			t.Errorf("settled %+v", in)
		}
		return agent.SettledMemory{
			MemoryVerdict: agent.MemoryVerdict{ID: in.ID, State: agent.MemoryWaitingConfirmation, Until: until}, Refused: agent.RefusedSignature,
		}, nil
	}
	env.RegisterDelayedCallback(decision(env, "early"), 0)
	env.RegisterDelayedCallback(func() {
		for i := range 20 {
			decision(env, fmt.Sprint(i))()
		}
		env.SignalWorkflow(agent.SignalMemoryDecision, 4711)
	}, 24*time.Hour)
	env.RegisterDelayedCallback(func() {
		decision(env, "good")()
		decision(env, "late")()
	}, 48*time.Hour)
	began := env.Now()
	verdict := m.write(t, env, memoryIn)
	if verdict.State != agent.MemoryStored || verdict.Record != "r" || verdict.Version != 2 {
		t.Errorf("verdict %+v", verdict)
	}
	want := "early 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 unreadable good late"
	if got := strings.Join(m.settled, " "); got != want {
		t.Errorf("settled %s", got)
	}
	if took := env.Now().Sub(began); took < 48*time.Hour || took > 49*time.Hour {
		t.Errorf("took %s", took)
	}
}

// TestLTM3Expires: two weeks later nobody has decided, and a clock that is slow
// is asked again, with a pause.
func TestLTM3Expires(t *testing.T) {
	t.Parallel()
	m := &memories{}
	env := m.environment(t)
	m.judge = waits(env, agent.MemoryWaitingReview)
	until := env.Now().Add(14 * 24 * time.Hour)
	m.settle = func(in agent.SettleMemoryInput) (agent.SettledMemory, error) {
		state := agent.MemoryExpired
		if len(m.settled) < 3 {
			state = agent.MemoryWaitingReview
		}
		return agent.SettledMemory{MemoryVerdict: agent.MemoryVerdict{ID: in.ID, State: state, Until: until}}, nil
	}
	began := env.Now()
	if verdict := m.write(t, env, memoryIn); verdict.State != agent.MemoryExpired {
		t.Errorf("verdict %+v", verdict)
	}
	if took := env.Now().Sub(began); took < 14*24*time.Hour+20*time.Second || took > 14*24*time.Hour+time.Minute {
		t.Errorf("took %s", took)
	}
	if len(m.settled) != 3 || strings.Join(m.settled, "") != "" {
		t.Errorf("settled %q", m.settled)
	}
}

// TestLTM3WaitsAnew: what changed before the decision is decided about again, in
// the time that is left then.
func TestLTM3WaitsAnew(t *testing.T) {
	t.Parallel()
	m := &memories{}
	env := m.environment(t)
	m.judge = waits(env, agent.MemoryWaitingConfirmation)
	m.settle = func(in agent.SettleMemoryInput) (agent.SettledMemory, error) {
		if in.Token == "" {
			return agent.SettledMemory{MemoryVerdict: agent.MemoryVerdict{ID: in.ID, State: agent.MemoryExpired}}, nil
		}
		return agent.SettledMemory{MemoryVerdict: agent.MemoryVerdict{
			ID: in.ID, State: agent.MemoryWaitingConfirmation, Until: env.Now().Add(14 * 24 * time.Hour),
		}}, nil
	}
	env.RegisterDelayedCallback(decision(env, "first"), 10*24*time.Hour)
	began := env.Now()
	if verdict := m.write(t, env, memoryIn); verdict.State != agent.MemoryExpired {
		t.Errorf("verdict %+v", verdict)
	}
	if took := env.Now().Sub(began); took < 24*24*time.Hour || took > 24*24*time.Hour+time.Hour {
		t.Errorf("took %s", took)
	}
}

// TestLTM3FloodOfDecisions: many forged decisions lead to a new history, which
// carries what nobody looked at yet.
func TestLTM3FloodOfDecisions(t *testing.T) {
	t.Parallel()
	m := &memories{}
	env := m.environment(t)
	m.judge = waits(env, agent.MemoryWaitingReview)
	until := env.Now().Add(14 * 24 * time.Hour)
	m.settle = func(in agent.SettleMemoryInput) (agent.SettledMemory, error) {
		if in.Token == "good" {
			return agent.SettledMemory{MemoryVerdict: agent.MemoryVerdict{ID: in.ID, State: agent.MemoryStored}}, nil
		}
		return agent.SettledMemory{
			MemoryVerdict: agent.MemoryVerdict{ID: in.ID, State: agent.MemoryWaitingReview, Until: until}, Refused: agent.RefusedMalformed,
		}, nil
	}
	env.RegisterDelayedCallback(func() {
		for range 105 {
			decision(env, "forged")()
		}
		decision(env, "good")()
	}, time.Hour)
	in := memoryIn
	in.Candidate = &agent.MemoryCandidate{Key: "preference.food"}
	m.propose = func(_ context.Context, in agent.MemoryWriteInput) (agent.MemoryVerdict, error) {
		return agent.MemoryVerdict{ID: in.ID, State: agent.MemoryProposed}, nil
	}
	env.ExecuteWorkflow(agent.WorkflowMemoryWrite, in)
	var next *workflow.ContinueAsNewError
	if err := env.GetWorkflowError(); !errors.As(err, &next) {
		t.Fatalf("error %v", err)
	}
	var again agent.MemoryWriteInput
	var carried *workflows.MemoryWriteCarried
	if err := decode(next, &again, &carried); err != nil || again != memoryIn || carried.Refusals != 100 || len(carried.Tokens) != 6 ||
		carried.LastRefusal != agent.RefusedMalformed {
		t.Fatalf("carries %+v, %+v, %v", again, carried, err)
	}
	env = m.environment(t)
	m.judge = waits(env, agent.MemoryWaitingReview)
	env.ExecuteWorkflow(agent.WorkflowMemoryWrite, again, carried)
	var verdict agent.MemoryVerdict
	if err := env.GetWorkflowResult(&verdict); err != nil || verdict.State != agent.MemoryStored {
		t.Errorf("verdict %+v, %v", verdict, err)
	}
	if len(m.settled) != 106 {
		t.Errorf("settled %d decisions", len(m.settled))
	}
}

// TestLTM5StoreDown: a store that is down for long is a result, and not for ever
// tried.
func TestLTM5StoreDown(t *testing.T) {
	t.Parallel()
	down := errors.New("database unavailable")
	for name, edit := range map[string]func(*memories, *agent.MemoryWriteInput){
		"propose": func(m *memories, in *agent.MemoryWriteInput) {
			in.Candidate = &agent.MemoryCandidate{}
			m.propose = func(context.Context, agent.MemoryWriteInput) (agent.MemoryVerdict, error) {
				return agent.MemoryVerdict{}, down
			}
		},
		"judge": func(m *memories, _ *agent.MemoryWriteInput) {
			m.judge = func(agent.MemoryWriteInput) (agent.MemoryVerdict, error) { return agent.MemoryVerdict{}, down }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &memories{}
			env := m.environment(t)
			m.judge = waits(env, agent.MemoryWaitingConfirmation)
			in := memoryIn
			edit(m, &in)
			began := env.Now()
			if verdict := m.write(t, env, in); verdict.State != agent.MemoryNotSaved || verdict.ID != "m-1" {
				t.Errorf("verdict %+v", verdict)
			}
			if took := env.Now().Sub(began); took > 16*24*time.Hour {
				t.Errorf("took %s", took)
			}
		})
	}
}

// TestLTM3DecisionNotCarriedOut: while the store is away for longer than a decision
// is tried, the candidate waits on; the person sends it again, or its time ends.
func TestLTM3DecisionNotCarriedOut(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		// again is when the decision is sent again, zero for never.
		again time.Duration
		// down is for how long the store is away.
		down        time.Duration
		want        agent.MemoryState
		least, most time.Duration
	}{
		"sent again":      {5 * day, 3 * day, agent.MemoryStored, 5 * day, 6 * day},
		"not sent again":  {0, 3 * day, agent.MemoryExpired, 14 * day, 15 * day},
		"away at the end": {0, 16 * day, agent.MemoryExpired, 16 * day, 18 * day},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &memories{}
			env := m.environment(t)
			began := env.Now()
			m.judge = waits(env, agent.MemoryWaitingConfirmation)
			m.settle = func(in agent.SettleMemoryInput) (agent.SettledMemory, error) {
				if env.Now().Sub(began) < c.down {
					return agent.SettledMemory{}, errors.New("database unavailable")
				}
				state := agent.MemoryStored
				if in.Token == "" {
					state = agent.MemoryExpired
				}
				return agent.SettledMemory{MemoryVerdict: agent.MemoryVerdict{ID: in.ID, State: state}}, nil
			}
			env.RegisterDelayedCallback(decision(env, "good"), time.Hour)
			if c.again > 0 {
				env.RegisterDelayedCallback(decision(env, "good"), c.again)
			}
			if verdict := m.write(t, env, memoryIn); verdict.State != c.want {
				t.Errorf("verdict %+v", verdict)
			}
			if took := env.Now().Sub(began); took < c.least || took > c.most {
				t.Errorf("took %s", took)
			}
		})
	}
}

// TestLTM3RunStillOpen: what comes from a run that is under way is left for later.
func TestLTM3RunStillOpen(t *testing.T) {
	t.Parallel()
	m := &memories{judge: decided(agent.MemoryProposed)}
	if verdict := m.write(t, m.environment(t), memoryIn); verdict.State != agent.MemoryProposed || len(m.settled) != 0 {
		t.Errorf("verdict %+v, settled %v", verdict, m.settled)
	}
}

func TestLTM5LearnFromRun(t *testing.T) {
	t.Parallel()
	m := &memories{judge: decided(agent.MemoryStored)}
	m.learn = func(in agent.LearnInput) (agent.LearnOutput, error) {
		if in.DefinitionDigest != "digest" || in.Run.RunID != "run-1" {
			t.Errorf("learn %+v", in)
		}
		return agent.LearnOutput{Candidates: []string{"m-1", "m-2"}, Rejected: 3}, nil
	}
	env := m.environment(t)
	env.ExecuteWorkflow(agent.WorkflowLearnFromRun, agent.LearnInput{
		Run: agent.RunRef{Scope: request().Scope(), RunID: "run-1"}, Room: memoryRoom, DefinitionDigest: "digest",
	})
	var result agent.LearnResult
	err := env.GetWorkflowResult(&result)
	if err != nil || result.State != agent.MemoryProposed || result.Rejected != 3 || fmt.Sprint(result.Candidates) != "[m-1 m-2]" {
		t.Errorf("result %+v, %v", result, err)
	}
	if got := strings.Join(m.started, ", "); got != "MemoryWrite memory-write~acme~m-1, MemoryWrite memory-write~acme~m-2" {
		t.Errorf("started %s", got)
	}
}

// TestLTM5ExtractorDown: learning that fails is a result, after a bounded number
// of tries.
func TestLTM5ExtractorDown(t *testing.T) {
	t.Parallel()
	tries := 0
	m := &memories{learn: func(agent.LearnInput) (agent.LearnOutput, error) {
		tries++
		return agent.LearnOutput{}, errors.New("the model is away")
	}}
	env := m.environment(t)
	env.ExecuteWorkflow(agent.WorkflowLearnFromRun, agent.LearnInput{})
	var result agent.LearnResult
	if err := env.GetWorkflowResult(&result); err != nil || result.State != agent.MemoryNotSaved || result.Failure != "unavailable" || tries != 2 {
		t.Errorf("result %+v after %d tries, %v", result, tries, err)
	}
}

// TestLTM5Later: what was found is judged although the lesson stays due.
func TestLTM5Later(t *testing.T) {
	t.Parallel()
	m := &memories{judge: decided(agent.MemoryStored)}
	m.learn = func(agent.LearnInput) (agent.LearnOutput, error) {
		return agent.LearnOutput{Candidates: []string{"m-1"}, Failure: "user_daily_tokens", Later: true}, nil
	}
	env := m.environment(t)
	env.ExecuteWorkflow(agent.WorkflowLearnFromRun, agent.LearnInput{Room: memoryRoom})
	var result agent.LearnResult
	if err := env.GetWorkflowResult(&result); err != nil || result.State != agent.MemoryNotSaved || result.Failure != "user_daily_tokens" || len(m.started) != 1 {
		t.Errorf("result %+v, started %v, %v", result, m.started, err)
	}
}

func TestLTM5NothingToLearn(t *testing.T) {
	t.Parallel()
	m := &memories{learn: func(agent.LearnInput) (agent.LearnOutput, error) { return agent.LearnOutput{}, nil }}
	env := m.environment(t)
	env.ExecuteWorkflow(agent.WorkflowLearnFromRun, agent.LearnInput{})
	var result agent.LearnResult
	if err := env.GetWorkflowResult(&result); err != nil || result.State != "" || len(m.started) != 0 {
		t.Errorf("result %+v, started %v, %v", result, m.started, err)
	}
}
