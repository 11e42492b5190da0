package endtoend

import (
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/examples/opspilot"
	"github.com/fairlead/fairlead/examples/opspilot/services"
	"github.com/fairlead/fairlead/examples/opspilot/tickets"
)

// envCrashMatrix set to "all" runs every cell of the matrix (`make crashes`);
// without it a diagonal runs, which has each point once and most behaviors.
const envCrashMatrix = "FAIRLEAD_CRASH_MATRIX"

// cellsAtOnce bounds the worker processes. A cell mostly waits for a heartbeat
// to be missed.
const cellsAtOnce = 16

// behavior is what the ticket service does with a write.
type behavior struct {
	name string
	// fate is the column of the matrices.
	fate fate
	// opens are the faults of the first requests to open a ticket, lookUps those
	// of the first look-ups.
	opens, lookUps []tickets.Fault
}

// fate is what becomes of the first request that reaches the service.
type fate int

const (
	answered   fate = iota // done, and told
	refused                // not done, and told; another one would be done
	lost                   // not done, and nothing told
	unanswered             // done, and nothing told
	closed                 // not done, and nothing told; others are refused
)

// A service that is away answers none of the first look-ups, one that is gone
// none of those that a run makes, and one that is closed refuses every request
// after the first.
var (
	away = []tickets.Fault{tickets.FaultRefuse, tickets.FaultHangBefore, tickets.FaultDropAfter}
	gone = slices.Repeat([]tickets.Fault{tickets.FaultRefuse}, 50)
	shut = append([]tickets.Fault{tickets.FaultDropBefore}, gone...)
)

func once(f tickets.Fault) []tickets.Fault { return []tickets.Fault{f} }

var behaviors = []behavior{
	{"answers", answered, nil, nil},
	{"times out before", lost, once(tickets.FaultHangBefore), nil},
	{"drops before, then is closed", closed, shut, nil},
	{"times out after", unanswered, once(tickets.FaultHangAfter), nil},
	{"refuses", refused, once(tickets.FaultRefuse), nil},
	{"drops before", lost, once(tickets.FaultDropBefore), nil},
	{"drops after", unanswered, once(tickets.FaultDropAfter), nil},
	{"answers, then is away", answered, nil, away},
	{"drops before, then is away", lost, once(tickets.FaultDropBefore), away},
	{"times out after, then is away", unanswered, once(tickets.FaultHangAfter), away},
}

// row says how a write comes out when the worker dies at a point, for each fate.
// Empty: no worker passes there, or nothing is gained by looking.
type row struct {
	at                                          string
	answered, refused, lost, unanswered, closed string
}

func (r row) want(f fate) string {
	return [...]string{r.answered, r.refused, r.lost, r.unanswered, r.closed}[f]
}

// outcomes without a stop. The run always goes on to its answer.
//
// A worker that dies between the intent and the answer leaves a write of which
// nobody knows: it is looked up, and sent again under the same key only if it is
// not there. A service that refuses says what became of that request, and not
// what becomes of an earlier one that may be under way; so it is asked once more
// when none can be.
var outcomes = []row{
	{
		at: "before PrepareWrite", answered: "performed by commit, sent 1", refused: "not_performed by commit, sent 1",
		lost: "performed by commit, sent 2", unanswered: "performed by look_up, sent 1", closed: "not_performed by commit, sent 3",
	},
	{
		at: "after PrepareWrite", answered: "performed by commit, sent 1", refused: "not_performed by commit, sent 1",
		lost: "performed by commit, sent 2", unanswered: "performed by look_up, sent 1", closed: "not_performed by commit, sent 3",
	},
	{
		at: "before CommitWrite", answered: "performed by commit, sent 1", refused: "not_performed by commit, sent 1",
		lost: "performed by commit, sent 2", unanswered: "performed by look_up, sent 1", closed: "not_performed by commit, sent 3",
	},
	{
		at: "before send 1", answered: "performed by commit, sent 2", refused: "not_performed by commit, sent 2",
		lost: "performed by commit, sent 3", unanswered: "performed by look_up, sent 2", closed: "not_performed by commit, sent 4",
	},
	{
		at: "after send 1", answered: "performed by look_up, sent 1", refused: "performed by commit, sent 2",
		lost: "performed by commit, sent 2", unanswered: "performed by look_up, sent 1", closed: "not_performed by commit, sent 2",
	},
	{
		at: "after CommitWrite", answered: "performed by commit, sent 1", refused: "not_performed by commit, sent 1",
		lost: "performed by commit, sent 2", unanswered: "performed by look_up, sent 1", closed: "not_performed by commit, sent 2",
	},
	{
		at: "before NextAction 1", answered: "performed by commit, sent 1", refused: "not_performed by commit, sent 1",
		lost: "performed by commit, sent 2", unanswered: "performed by look_up, sent 1", closed: "not_performed by commit, sent 3",
	},
	{
		at: "before ResolveWrite", lost: "performed by commit, sent 2", unanswered: "performed by look_up, sent 1",
		closed: "not_performed by commit, sent 2",
	},
	{
		at: "after ResolveWrite", lost: "performed by commit, sent 2", unanswered: "performed by look_up, sent 1",
		closed: "not_performed by commit, sent 3",
	},
	{at: "before send 2", lost: "performed by commit, sent 3", closed: "not_performed by commit, sent 3"},
	{at: "after send 2", lost: "performed by look_up, sent 2", closed: "not_performed by commit, sent 3"},
}

// outcomesCanceled are those of a run that is canceled after the worker has
// died, which ends it canceled (RUN-13). What may have happened is found out
// first; what did not happen is sent no more. A look-up that was under way
// already does not know of the cancel, and finishes the write.
var outcomesCanceled = []row{
	{at: "before PrepareWrite", answered: "no intent"},
	{at: "after PrepareWrite", answered: "no intent"},
	{at: "before CommitWrite", answered: "no intent"},
	{
		at: "before send 1", answered: "not_performed by look_up, sent 1", refused: "not_performed by look_up, sent 1",
		lost: "not_performed by look_up, sent 1", unanswered: "not_performed by look_up, sent 1",
	},
	{
		at: "after send 1", answered: "performed by look_up, sent 1", refused: "not_performed by look_up, sent 1",
		lost: "not_performed by look_up, sent 1", unanswered: "performed by look_up, sent 1",
	},
	{
		at: "after CommitWrite", answered: "performed by commit, sent 1", refused: "not_performed by commit, sent 1",
		lost: "not_performed by look_up, sent 1", unanswered: "performed by look_up, sent 1",
	},
	{
		at: "before NextAction 1", answered: "performed by commit, sent 1", refused: "not_performed by commit, sent 1",
		lost: "performed by commit, sent 2", unanswered: "performed by look_up, sent 1",
	},
	{at: "after ResolveWrite", lost: "performed by commit, sent 2", unanswered: "performed by look_up, sent 1"},
}

// outcomesNeverKnown are those of a service that never answers a look-up: the
// run says that it does not know, also when it is canceled, and an operator
// settles it.
var outcomesNeverKnown = []struct {
	at       string
	behavior behavior
	cancel   bool
}{
	{"before send 1", behavior{"answers, then is gone", answered, nil, gone}, false},
	{"after send 1", behavior{"answers, then is gone", answered, nil, gone}, true},
	{"after CommitWrite", behavior{"times out after, then is gone", unanswered, once(tickets.FaultHangAfter), gone}, false},
	{"before send 1", behavior{"times out before, then is gone", lost, once(tickets.FaultHangBefore), gone}, true},
}

// cell is one way for a worker to die.
type cell struct {
	at       string
	behavior behavior
	cancel   bool
	reason   agent.Reason
	want     string
}

func (c cell) name() string {
	name := c.at + ", service " + c.behavior.name
	if c.cancel {
		name += ", canceled"
	}
	return name
}

// cells lists the matrix, or its diagonal.
func cells(all bool) (list []cell) {
	cross := func(rows []row, columns []behavior, cancel bool, reason agent.Reason) {
		for i, row := range rows {
			var of []cell
			for _, b := range columns {
				if want := row.want(b.fate); want != "" {
					of = append(of, cell{row.at, b, cancel, reason, want})
				}
			}
			if !all {
				of = of[i%len(of):][:1]
			}
			list = append(list, of...)
		}
	}
	cross(outcomes, behaviors, false, agent.ReasonFinal)
	// A service that is away for a while only takes more time.
	cross(outcomesCanceled, behaviors[:7], true, agent.ReasonCanceled)
	for i, c := range outcomesNeverKnown {
		if all || i < 2 {
			list = append(list, cell{c.at, c.behavior, c.cancel, agent.ReasonOutcomeUnknown, "unknown by , sent 1"})
		}
	}
	return list
}

// TestCrashMatrix kills a real worker process at each point of a write, against
// a ticket service that behaves in each way, and starts another one. The ticket
// exists once or provably not at all, the record says which and how that is
// known, the ledger adds up, and nothing is left waiting (RUN-9, RUN-13, WRITE-4,
// WRITE-5, EVAL-3).
func TestCrashMatrix(t *testing.T) {
	t.Parallel()
	list := cells(os.Getenv(envCrashMatrix) == "all")
	t.Logf("%d cells", len(list))
	// The number of parallel subtests follows the processors; these only wait.
	var group sync.WaitGroup
	places := make(chan struct{}, cellsAtOnce)
	for _, c := range list {
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			t.Run(c.name(), c.run)
		})
	}
	group.Wait()
}

func (c cell) run(t *testing.T) {
	w := newWorld(t)
	service, doom := c.stage(w)
	first := w.startDoomed(doom)
	request := openTicket()
	run := w.start(request)

	switch c.at {
	case "before PrepareWrite", "after PrepareWrite":
	default:
		w.confirm(request)
	}
	select {
	case <-first.exited:
	case <-time.After(patience):
		t.Fatal("the worker never came to the point where it dies")
	}
	if status, ok := first.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("the worker ended with %v, it was to be killed", first.ProcessState)
	}
	switch {
	case c.cancel:
		if err := w.client.CancelWorkflow(w.ctx, run.GetID(), ""); err != nil {
			t.Fatal(err)
		}
	case c.at == "after PrepareWrite":
		// Temporal does not know yet that the run waits; the approver does.
		w.confirm(request)
	}
	w.startDoomed(doom)
	if c.at == "before PrepareWrite" && !c.cancel {
		w.confirm(request)
	}
	result := w.wait(run)
	c.check(w, request, result, service)
	if c.reason == agent.ReasonOutcomeUnknown {
		w.settle(request, service)
	}
}

// stage makes the ticket service, which outlives the workers, and the doom of
// the first worker.
func (c cell) stage(w *world) (*tickets.Service, doom) {
	w.Helper()
	service, err := tickets.Open("")
	if err != nil {
		w.Fatal(err)
	}
	service.FailOpens(c.behavior.opens...)
	service.FailLookUps(c.behavior.lookUps...)
	server := httptest.NewServer(service)
	w.Cleanup(func() {
		_ = service.Close()
		server.Close()
	})
	directory := w.TempDir()
	registry, err := services.Open(directory)
	if err == nil {
		err = registry.Put(services.Record{
			ID: services.ID("payment-api", "test"), Name: "payment-api", Environment: "test",
			Address: "127.0.0.1:9", PID: 1, StartedAt: time.Now(), LogPath: filepath.Join(directory, "log"),
		})
	}
	if err != nil {
		w.Fatal(err)
	}
	return service, doom{At: c.at, Marker: filepath.Join(directory, "died"), Tickets: server.URL, Services: directory}
}

// startDoomed starts a worker process that dies as doom says, unless one has.
func (w *world) startDoomed(d doom) *process {
	w.Helper()
	return w.startProcess(func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, envDoom+"="+d.encode(), "FAIRLEAD_APPROVAL_PUBLIC_KEYS="+approvalKey.Public())
	})
}

// ticketArguments are what the model proposes.
const ticketArguments = `{"service_id":"payment-api.test","title":"Leak","details":"3 of 3 connections","severity":"high"}`

func openTicket() agent.RunRequest {
	req := request("call " + opspilot.OpenTicket + " " + ticketArguments)
	req.Agent = "ticketer"
	return req
}

// confirm waits for the plan and lets bob approve it.
func (w *world) confirm(req agent.RunRequest) {
	w.Helper()
	office := w.office()
	w.until("a plan waits", func() bool {
		waiting, err := office.Pending(w.ctx, bob, approval.Filter{RunID: req.RunID})
		if err != nil {
			w.Fatal(err)
		}
		if len(waiting.Plans) == 0 {
			return false
		}
		token, err := office.Approve(w.ctx, bob, waiting.Plans[0])
		if err != nil {
			w.Fatal(err)
		}
		w.signal(req, token.Text)
		return true
	})
}

// check compares what the record says with the cell and with the service.
func (c cell) check(w *world, req agent.RunRequest, result agent.RunResult, service *tickets.Service) {
	report := w.show(req)
	if result.Reason != c.reason || report.Run.Reason != c.reason {
		w.Errorf("ended %s (%s), recorded %s; want %s", result.Reason, result.Detail, report.Run.Reason, c.reason)
	}
	got, effects := "no intent", map[string]int{}
	var state db.WriteResult
	if len(report.Writes) == 1 {
		i := report.Writes[0]
		state, got = i.Result, fmt.Sprintf("%s by %s, sent %d", i.Result, i.ResolvedBy, i.Sends)
		if i.ApprovedBy != bob.User {
			w.Errorf("approved by %q", i.ApprovedBy)
		}
		if state == db.WritePerformed {
			effects[i.Key] = 1
		}
	}
	if got != c.want || len(report.Writes) > 1 {
		w.Errorf("the write is %s (%d intents), want %s", got, len(report.Writes), c.want)
	}
	if state != db.WriteUnknown && !maps.Equal(service.Effects(), effects) {
		w.Errorf("tickets by key %v, the record says %v", service.Effects(), effects)
	}

	// What the call, the result and the model are told is the same.
	var call db.CallStatus
	var code agent.ToolErrorCode
	switch state {
	case db.WritePerformed:
		call = db.CallSucceeded
	case db.WriteNotPerformed:
		call, code = db.CallFailed, agent.ToolUnavailable
		if c.cancel && strings.Contains(c.want, "look_up") {
			code = agent.ToolFailed
		}
	case db.WriteUnknown:
		call, code = db.CallUnknown, agent.ToolOutcomeUnknown
	default:
		call = db.CallAbandoned
	}
	if calls := report.Calls(); len(calls) != 1 || calls[0].Status != call {
		w.Errorf("the calls are %+v, want one that is %s", calls, call)
	}
	if call == db.CallAbandoned {
		if len(result.Actions) != 0 {
			w.Errorf("the result names the actions %+v, none was completed", result.Actions)
		}
	} else if a := result.Actions; len(a) != 1 || a[0].Tool != opspilot.OpenTicket || a[0].Error != code {
		w.Errorf("the result names the actions %+v, want one with error %q", a, code)
	}
	if c.reason == agent.ReasonFinal {
		c.checkAnswer(w, req, report, service)
	}
	c.checkRest(w, req, result, report)
}

// checkAnswer: the model was told what happened, and asked twice in all.
func (c cell) checkAnswer(w *world, req agent.RunRequest, report db.RunReport, service *tickets.Service) {
	told := "no ticket was opened"
	if all := service.Tickets(); len(all) > 0 {
		told = all[0].ID
	}
	if !strings.Contains(report.Answer, told) {
		w.Errorf("the answer %q does not say %q", report.Answer, told)
	}
	if attempts, bought := w.attempts(req), w.bought(); attempts != 2 || bought != 2 {
		w.Errorf("%d attempts and %d purchases, want 2", attempts, bought)
	}
}

// checkRest: nothing waits, the one token was believed unless it came too late,
// and the ledger adds up.
func (c cell) checkRest(w *world, req agent.RunRequest, result agent.RunResult, report db.RunReport) {
	plan := db.PlanApproved
	if len(report.Writes) == 0 {
		plan = db.PlanWithdrawn
	}
	if n := len(report.Plans); n > 1 || n == 0 && c.at != "before PrepareWrite" {
		w.Errorf("there are %d plans", n)
	}
	for _, p := range report.Plans {
		if p.Status != plan {
			w.Errorf("the plan is %s, want %s", p.Status, plan)
		}
	}
	refused := ""
	for _, r := range report.Refusals {
		refused += string(r.Code)
	}
	// A cancel came before anybody looked at the token: it is on record as late.
	want := ""
	if c.at == "before CommitWrite" && len(report.Writes) == 0 {
		want = string(agent.RefusedUsed)
	}
	if refused != want {
		w.Errorf("approvals were refused: %q, want %q", refused, want)
	}
	if n := w.number("SELECT count(*) FROM run WHERE ended_at IS NULL OR waiting_since IS NOT NULL"); n != 0 {
		w.Errorf("%d runs have not ended", n)
	}
	if n := w.number("SELECT count(*) FROM write_intent WHERE outcome = 'open'"); n != 0 {
		w.Errorf("%d writes are open", n)
	}
	w.checkLedger(w, req, result)
}

// settle lets an operator look at the service and record what is there.
func (w *world) settle(req agent.RunRequest, service *tickets.Service) {
	w.Helper()
	unknown := w.show(req).Writes[0]
	performed := service.Effects()[unknown.Key] == 1
	ref := approval.WriteRef{RunID: req.RunID, CallID: unknown.CallID}
	if _, err := w.office().Settle(w.ctx, w.client, olga, ref, approval.Settlement{Performed: performed, Note: "looked"}); err != nil {
		w.Fatal(err)
	}
	want, status := "not_performed by operator", db.CallFailed
	if performed {
		want, status = "performed by operator", db.CallSucceeded
	}
	report := w.show(req)
	if got := fmt.Sprintf("%s by %s", report.Writes[0].Result, report.Writes[0].ResolvedBy); got != want || report.Calls()[0].Status != status {
		w.Errorf("settled, the write is %s and the call %s; want %s and %s", got, report.Calls()[0].Status, want, status)
	}
}
