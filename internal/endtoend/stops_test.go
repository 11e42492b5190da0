package endtoend

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/internal/rig"
	"github.com/fairlead/fairlead/model"
)

// cancelInUI requests cancellation as the button of the Web UI does.
func (w *world) cancelInUI(workflowID string) {
	w.Helper()
	w.webUI(http.MethodPost, "/workflows/"+workflowID+"/cancel", `{"reason":"a test"}`)
}

// webUI asks the Web UI's HTTP API about the namespace, with the token against
// forged requests that the UI's pages send, and returns the JSON of the answer.
func (w *world) webUI(method, path, body string) json.RawMessage {
	w.Helper()
	address := os.Getenv("FAIRLEAD_UI_URL")
	if address == "" {
		w.Fatal("FAIRLEAD_UI_URL is not set: run `make test`, which brings the Web UI and sets it")
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		w.Fatal(err)
	}
	browser := http.Client{Jar: jar, Timeout: 20 * time.Second}
	page, err := browser.Get(address + "/api/v1/settings")
	if err != nil {
		w.Fatal(err)
	}
	_ = page.Body.Close()
	request, err := http.NewRequestWithContext(w.ctx, method, address+"/api/v1/namespaces/"+namespace()+path, strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	for _, cookie := range page.Cookies() {
		if cookie.Name == "_csrf" {
			request.Header.Set("X-CSRF-TOKEN", cookie.Value)
		}
	}
	response, err := browser.Do(request)
	if err != nil {
		w.Fatal(err)
	}
	defer response.Body.Close()
	var answer json.RawMessage
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || response.StatusCode != http.StatusOK {
		w.Fatalf("%s %s: the Web UI answers %s: %s, %v", method, path, response.Status, answer, err)
	}
	return answer
}

// supersede begins a newer generation, which ends with an answer.
func (w *world) supersede(older agent.RunRequest) agent.RunRequest {
	w.Helper()
	newer := request("answer Here I am.")
	newer.Conversation = older.Conversation
	if result := w.run(newer); result.Reason != agent.ReasonFinal {
		w.Fatalf("the newer run ended %+v", result)
	}
	return newer
}

// heardOfStop waits until an activity of the run has been told to stop: its
// heartbeat after the request brings the news. When the request was is in the
// history: whoever asks the server may come late, after the last heartbeat.
func (w *world) heardOfStop(workflowID string) {
	w.Helper()
	w.until("the activity is told to stop", func() bool {
		requested := slices.IndexFunc(w.eventsOf(workflowID, ""), func(e *history.HistoryEvent) bool {
			return e.EventType == enums.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED
		})
		if requested < 0 {
			return false
		}
		asked := w.eventsOf(workflowID, "")[requested].EventTime.AsTime()
		d, err := w.client.DescribeWorkflow(w.ctx, workflowID, "")
		if err != nil {
			w.Fatal(err)
		}
		return slices.ContainsFunc(d.RawResponse.PendingActivities, func(a *workflowpb.PendingActivityInfo) bool {
			return a.LastHeartbeatTime.AsTime().After(asked)
		})
	})
}

// stops are the moments at which a run is stopped, and what it amounts to then.
var stops = []struct {
	name string
	// mode is how the thing behaves when it is changed; "slow" is the model's.
	mode string
	// approved says that the stop meets the commit.
	approved bool
	record   string
	effects  int
	action   agent.CompletedAction
}{
	{name: "waiting for the model", mode: "slow"},
	{name: "waiting for a person", record: "plan 0.0/1 withdrawn, call 0.0 abandoned, call 0.1 abandoned"},
	{
		"committing", "hold", true,
		"plan 0.0/1 approved by bob, write 0.0 performed by commit, call 0.0 succeeded, call 0.1 abandoned",
		1,
		agent.CompletedAction{CallID: "0.0", Tool: "change"},
	},
	{
		"committing, the answer gets lost", "timeout-after", true,
		"plan 0.0/1 approved by bob, write 0.0 performed by look_up, call 0.0 succeeded, call 0.1 abandoned",
		1,
		agent.CompletedAction{CallID: "0.0", Tool: "change"},
	},
	{
		// What did not happen is not done again for a run that was stopped.
		"committing, the write gets lost", "timeout-before", true,
		"plan 0.0/1 approved by bob, write 0.0 not_performed by look_up, call 0.0 failed failed, call 0.1 abandoned",
		0,
		agent.CompletedAction{CallID: "0.0", Tool: "change", Error: agent.ToolFailed},
	},
}

// TestStopped cancels runs with the Web UI's API, and supersedes them, at each of
// these moments. What was only planned is withdrawn; a commit in flight reaches
// its boundary and is recorded; nothing begins any more (RUN-12, RUN-13).
func TestStopped(t *testing.T) {
	t.Parallel()
	for _, reason := range []agent.Reason{agent.ReasonCanceled, agent.ReasonSuperseded} {
		for _, stop := range stops {
			if reason == agent.ReasonSuperseded && stop.mode == "timeout-before" {
				continue // it takes 7 s until a look-up that finds nothing is decisive
			}
			t.Run(string(reason)+", "+stop.name, func(t *testing.T) {
				t.Parallel()
				things := newThings()
				w := newWorld(t).withWriter(things, nil)
				req := ask("changer", "slow")
				if stop.mode != "slow" {
					// The second write never begins.
					req.Message = "calls " + proposal("change", changeArgs{Thing: "lamp", To: "on", Mode: stop.mode}) + "\n" +
						proposal("change", changeArgs{Thing: "radio", To: "on"})
				}
				run := w.start(req)
				var token approval.Token
				switch {
				case stop.mode == "slow":
					w.until("the model is called", func() bool { return w.attempts(req) > 0 })
				case stop.approved:
					token = w.approve(req, bob)
					<-things.entered
				default:
					token = w.token(bob, w.pending(req, bob), approval.Approve)
				}
				steps := len(w.show(req).Attempts())
				began := time.Now()
				newer := int64(0)
				if reason == agent.ReasonCanceled {
					w.cancelInUI(run.GetID())
				} else {
					w.supersede(req)
					newer = 2 // question and answer
				}
				if stop.mode == "hold" {
					w.heardOfStop(run.GetID())
					if status := w.status(req); status != agent.StatusRunning {
						t.Errorf("status %s while the write is committed", status)
					}
					close(things.release)
				}
				result := w.wait(run)
				if took := time.Since(began); took > 20*time.Second {
					t.Errorf("it took %s", took)
				}
				if result.Reason != reason || result.Status != agent.StatusCanceled || result.AnswerMessageID != "" {
					t.Errorf("ended %+v", result)
				}
				w.wantRecord(req, stop.record)
				want := []agent.CompletedAction{stop.action}
				if !stop.approved {
					want = nil
				}
				if !slices.Equal(result.Actions, want) || things.total() != stop.effects {
					t.Errorf("actions %+v, want %+v; %d effects", result.Actions, want, things.total())
				}
				report := w.show(req)
				if report.Run.Status != agent.StatusCanceled || report.Run.Reason != reason || len(report.Attempts()) != steps {
					t.Errorf("the database says %s, %s after %d attempts, it were %d", report.Run.Status, report.Run.Reason, len(report.Attempts()), steps)
				}
				// The older generation adds nothing to the conversation.
				if n := w.messages(req); n != 1+newer {
					t.Errorf("%d messages", n)
				}
				w.countedAs(run.GetID(), reason)
				// What was confirmed for the stopped run counts no more.
				if token.Text != "" {
					if err := w.client.SignalWorkflow(w.ctx, run.GetID(), "", agent.SignalApproval, agent.Approval{Token: token.Text}); err == nil {
						t.Error("a run that has ended takes a token")
					}
					if pending, err := w.office().Pending(w.ctx, bob, approval.Filter{RunID: req.RunID}); err != nil || len(pending.Plans) != 0 {
						t.Errorf("still pending: %+v, %v", pending, err)
					}
				}
				w.checkWrites(req, things)
				w.checkLedger(t, req, result)
			})
		}
	}
}

// countedAs looks for the run among the canceled ones, as an operator counts
// them in the Web UI: apart from those that failed.
func (w *world) countedAs(workflowID string, reason agent.Reason) {
	w.Helper()
	status := `ExecutionStatus = "Canceled"`
	if reason == agent.ReasonSuperseded {
		// Nobody canceled the workflow: it completed, and its run is canceled.
		status = `ExecutionStatus = "Completed"`
	}
	query := fmt.Sprintf(`WorkflowId = %q AND %s AND %s = "canceled" AND %s = %q`, workflowID, status, agent.SearchStatus, agent.SearchReason, reason)
	// Visibility follows a little later.
	w.until("the run is counted as "+string(reason), func() bool {
		counted, err := w.client.CountWorkflow(w.ctx, &workflowservice.CountWorkflowExecutionsRequest{Namespace: namespace(), Query: query})
		if err != nil {
			w.Fatal(err)
		}
		return counted.Count == 1
	})
}

// stubborn is a model that ignores the end of its context, as a provider may
// that answers all the same.
type stubborn struct {
	model.Model
	entered, release chan struct{}
}

func (s *stubborn) Generate(ctx context.Context, req model.Request, stream func(model.Delta)) (model.Response, error) {
	if strings.HasPrefix(question(req), "answer Too late") {
		s.entered <- struct{}{}
		<-s.release
		ctx = context.WithoutCancel(ctx)
	}
	return s.Model.Generate(ctx, req, stream)
}

// TestLateAnswerIsFenced: the answer of an older generation that arrives after
// the newer one has ended is no message, and its run does nothing more.
func TestLateAnswerIsFenced(t *testing.T) {
	t.Parallel()
	late := &stubborn{entered: make(chan struct{}, 9), release: make(chan struct{})}
	w := newWorld(t).withWriter(newThings(), func(c *rig.Config) { late.Model, c.Model = c.Model, late })
	older := request("answer Too late.")
	run := w.start(older)
	<-late.entered
	newer := w.supersede(older)
	close(late.release)
	if result := w.wait(run); result.Reason != agent.ReasonSuperseded || result.AnswerMessageID != "" || result.Usage.Attempts != 1 {
		t.Errorf("ended %+v", result)
	}
	if n := w.messages(older); n != 3 {
		t.Errorf("%d messages, want two questions and one answer", n)
	}
	if answer := w.show(newer).Answer; answer != "Here I am." {
		t.Errorf("the newer run says %q", answer)
	}
}
