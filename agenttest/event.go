package agenttest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
)

// Event is something that happens during a run. Make one with When or Whenever.
type Event struct {
	moment  Moment
	actions []Action
	always  bool
	// met says that the moment came, done how many actions were taken then.
	met  bool
	done int
}

// When lets actions follow, in order, on one occurrence of a moment. Several
// events for the same moment take its occurrences in turn: the first event the
// first one, the second event the second one.
func When(moment Moment, actions ...Action) Event { return Event{moment: moment, actions: actions} }

// Whenever is When for every occurrence that no When takes.
func Whenever(moment Moment, actions ...Action) Event {
	return Event{moment: moment, actions: actions, always: true}
}

// Moment is a point in the course of a run.
type Moment struct {
	kind momentKind
	name string
	at   time.Duration
}

type momentKind string

const (
	planWaits      momentKind = "PlanWaits"
	elapsed        momentKind = "Elapsed"
	modelCalled    momentKind = "ModelCalled"
	toolBegins     momentKind = "ToolBegins"
	toolReturns    momentKind = "ToolReturns"
	beforeActivity momentKind = "BeforeActivity"
	afterActivity  momentKind = "AfterActivity"
	memoryWaits    momentKind = "MemoryWaits"
)

// String is the moment as a test writes it.
func (m Moment) String() string {
	switch m.kind {
	case elapsed:
		return fmt.Sprintf("%s(%s)", m.kind, m.at)
	case planWaits, modelCalled, memoryWaits:
		return string(m.kind) + "()"
	default:
		return fmt.Sprintf("%s(%q)", m.kind, m.name)
	}
}

// PlanWaits is when a write has been prepared and the run waits for a person. A
// plan that is prepared anew, because its resource changed, is another
// occurrence. The person takes ThinkTime to look at it.
func PlanWaits() Moment { return Moment{kind: planWaits} }

// ThinkTime is the virtual time between the preparation of a plan and PlanWaits.
const ThinkTime = time.Second

// Elapsed is when d of virtual time, more than none, has passed since the start.
func Elapsed(d time.Duration) Moment { return Moment{kind: elapsed, at: d} }

// ModelCalled is when the model has been asked and has not answered.
func ModelCalled() Moment { return Moment{kind: modelCalled} }

// ToolBegins is when the Execute of a tool is about to be called. For a write
// that is after the intent was recorded.
func ToolBegins(name string) Moment { return Moment{kind: toolBegins, name: name} }

// ToolReturns is when the Execute of a tool has had its effect, and nobody has
// seen its result.
func ToolReturns(name string) Moment { return Moment{kind: toolReturns, name: name} }

// BeforeActivity is when a worker was given an activity and has not begun. The
// names are those of package agent, such as agent.ActivityCommitWrite.
func BeforeActivity(name string) Moment { return Moment{kind: beforeActivity, name: name} }

// AfterActivity is when an activity has succeeded, and the engine has not heard
// of it.
func AfterActivity(name string) Moment { return Moment{kind: afterActivity, name: name} }

// MemoryWaits is when a memory that was proposed in the run waits for a person, or
// does so anew because what it would replace changed. It comes after the run's end,
// once for each memory; the person takes ThinkTime. Until somebody decides, or the
// memory expires, no other run of the Suite begins.
func MemoryWaits() Moment { return Moment{kind: memoryWaits} }

// Action is what happens at a Moment.
type Action struct {
	name string
	// do runs on the goroutine of the test.
	do func(*run)
	// wait is virtual time, replace what a tool is to do instead.
	wait    time.Duration
	replace func() error
}

// Wait lets virtual time pass before the next action. In a tool or a model it
// counts against its timeout, as a slow one would.
func Wait(d time.Duration) Action { return Action{name: fmt.Sprintf("Wait(%s)", d), wait: d} }

// Do calls a function of the test, on the test's goroutine.
func Do(fn func()) Action {
	return Action{name: "Do", do: func(*run) { fn() }}
}

// CheckPlan shows the plan to a function of the test, as a person would see it.
func CheckPlan(check func(Plan)) Action {
	return Action{name: "CheckPlan", do: func(r *run) {
		plan, ok := r.newestPlan()
		if !ok {
			r.t.Errorf("agenttest: CheckPlan: there is no plan yet\n%s", r.journal)
			return
		}
		check(plan)
	}}
}

// ApproveAs has a person confirm the newest plan: a token is signed for it, which
// the run verifies as in production. Edits change what the token says, to see
// that it is refused. Before there is a plan the token is for an invented one.
func ApproveAs(approver string, edits ...func(*approval.Claims)) Action {
	return Action{name: fmt.Sprintf("ApproveAs(%q)", approver), do: func(r *run) {
		r.decide(r.suite.key, approver, approval.Approve, edits)
	}}
}

// DeclineAs is ApproveAs for the opposite.
func DeclineAs(approver string, edits ...func(*approval.Claims)) Action {
	return Action{name: fmt.Sprintf("DeclineAs(%q)", approver), do: func(r *run) {
		r.decide(r.suite.key, approver, approval.Decline, edits)
	}}
}

// ForgeAs is ApproveAs with a key that the workers do not trust.
func ForgeAs(approver string) Action {
	return Action{name: fmt.Sprintf("ForgeAs(%q)", approver), do: func(r *run) {
		r.decide(r.suite.stranger, approver, approval.Approve, nil)
	}}
}

// SendAgain sends the last token once more, of a plan or of a memory.
func SendAgain() Action {
	return Action{name: "SendAgain", do: func(r *run) {
		if r.sendAgain == nil {
			r.t.Errorf("agenttest: SendAgain: no token was sent yet")
			return
		}
		r.sendAgain()
	}}
}

// SendToken sends any text as a token.
func SendToken(text string) Action {
	return Action{name: "SendToken", do: func(r *run) { r.sendToken(text) }}
}

// SettleAs has an operator record whether the newest write happened, whose
// outcome is not known, and tells the run. The policies must allow it.
func SettleAs(operator string, performed bool) Action {
	return Action{name: fmt.Sprintf("SettleAs(%q, %t)", operator, performed), do: func(r *run) { r.settle(operator, performed) }}
}

// Cancel cancels the run.
func Cancel() Action { return Action{name: "Cancel", do: (*run).cancel} }

// Supersede begins a newer run in the conversation. It is begun and no more: what
// is tested is how the older one ends.
func Supersede(message string) Action {
	return Action{name: "Supersede", do: func(r *run) { r.supersede(message) }}
}

// Crash is the death of the worker: what it was doing stops at this point, what
// it had not stored is lost, and another worker takes over.
func Crash() Action { return Action{name: "Crash", do: (*run).crash} }

// DatabaseDown makes the next n transactions and reads fail: the database cannot
// be reached.
func DatabaseDown(n int) Action {
	return Action{name: fmt.Sprintf("DatabaseDown(%d)", n), do: func(r *run) { r.down.Add(int64(n)) }}
}

// MemoryDown makes the next n uses of long-term memory fail, while the rest of the
// database goes on.
func MemoryDown(n int) Action {
	return Action{name: fmt.Sprintf("MemoryDown(%d)", n), do: func(r *run) { r.memoryDown.Add(int64(n)) }}
}

// EmbedderDown makes the embedder fail the next n times.
func EmbedderDown(n int) Action {
	return Action{name: fmt.Sprintf("EmbedderDown(%d)", n), do: func(r *run) { r.embedderDown.Add(int64(n)) }}
}

// ConfirmMemoryAs has a person confirm the memory that waits: the user, or a
// reviewer, as MemoryWaits says.
func ConfirmMemoryAs(person string) Action {
	return Action{name: fmt.Sprintf("ConfirmMemoryAs(%q)", person), do: func(r *run) { r.decideMemory(r.suite.key, person, approval.Approve) }}
}

// DeclineMemoryAs is ConfirmMemoryAs for the opposite.
func DeclineMemoryAs(person string) Action {
	return Action{name: fmt.Sprintf("DeclineMemoryAs(%q)", person), do: func(r *run) { r.decideMemory(r.suite.key, person, approval.Decline) }}
}

// ForgeMemoryAs is ConfirmMemoryAs with a key that the workers do not trust.
func ForgeMemoryAs(person string) Action {
	return Action{name: fmt.Sprintf("ForgeMemoryAs(%q)", person), do: func(r *run) { r.decideMemory(r.suite.stranger, person, approval.Approve) }}
}

// Fail makes a tool return err. At ToolBegins the tool is not called; at
// ToolReturns its effect has happened and its answer is replaced. Remember that
// an error other than *tool.Error leaves open whether a write happened.
func Fail(err error) Action {
	return Action{name: "Fail", replace: func() error { return err }}
}

// Panic makes a tool panic, before or after its effect.
func Panic() Action {
	return Action{name: "Panic", replace: func() error { panic("agenttest: a panic that a test asked for") }}
}

// add takes up an event, or says why it cannot happen.
func (r *run) add(e Event) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("When(%s, …): %s", e.moment, fmt.Sprintf(format, args...))
	}
	if e.moment.kind == "" {
		return errors.New("an Event without a moment: make it with When or Whenever")
	}
	if len(e.actions) == 0 {
		return fail("there is no action")
	}
	switch e.moment.kind {
	case elapsed:
		if e.moment.at <= 0 {
			return fail("the time must be more than none")
		}
		if e.always {
			return fail("a time comes once: use When")
		}
	case beforeActivity, afterActivity:
		if names := agent.Activities(); !slices.Contains(names, e.moment.name) {
			return fail("there is no such activity; there are %s", strings.Join(names, ", "))
		}
	case toolBegins, toolReturns:
		var names []string
		for _, t := range r.suite.tools(nil) {
			names = append(names, t.Spec().Name)
		}
		if !slices.Contains(names, e.moment.name) {
			return fail("there is no such tool; there are %s", strings.Join(names, ", "))
		}
	}
	for _, a := range e.actions {
		switch {
		case a.name == "":
			return fail("an Action without content: make it with one of the functions of this package")
		case a.replace != nil && e.moment.kind != toolBegins && e.moment.kind != toolReturns:
			return fail("%s is for ToolBegins and ToolReturns", a.name)
		case a.wait < 0:
			return fail("%s is negative", a.name)
		}
	}
	r.events = append(r.events, &e)
	return nil
}

// take finds the event for an occurrence of a moment, nil if there is none.
func (r *run) take(m Moment) *Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	var always *Event
	for _, e := range r.events {
		switch {
		case e.moment != m:
		case e.always:
			always = e
		case !e.met:
			e.met = true
			return e
		}
	}
	if always != nil {
		always.met = true
	}
	return always
}

// reportUnmet fails the test for events that never happened: what such a test
// shows is not what it says.
func (r *run) reportUnmet(end string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		switch {
		case e.always:
		case !e.met:
			r.t.Errorf("agenttest: %s never came about: the run ended %s before\n%s", e.moment, end, r.journal)
		case e.done < len(e.actions):
			var left []string
			for _, a := range e.actions[e.done:] {
				left = append(left, a.name)
			}
			r.t.Errorf("agenttest: %s: %s did not come to pass: the run ended %s before\n%s", e.moment, strings.Join(left, ", "), end, r.journal)
		}
	}
}
