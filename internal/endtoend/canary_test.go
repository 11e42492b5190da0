package endtoend

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
)

// watched is a worker process whose log is kept.
type watched struct {
	*process
	logged lockedBuffer
}

func (w *world) startWatched() *watched {
	w.Helper()
	p := &watched{}
	p.process = w.startProcess(func(c *exec.Cmd) {
		c.Stdout, c.Stderr = &p.logged, &p.logged
		c.Env = append(c.Env, "FAIRLEAD_LOG_LEVEL=debug", "FAIRLEAD_LOG_FORMAT=json")
	})
	return p
}

// TestCanaryStaysInside sends one string through message, arguments, results,
// errors and answer, and searches all that leaves: histories, memos, search
// attributes, log lines and metrics (OBS-2).
func TestCanaryStaysInside(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"looker", "looker-local"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			worker := w.startWatched()
			req := request("canary " + canary)
			req.Agent = mode
			run := w.start(req)
			result := w.wait(run)
			if result.Reason != agent.ReasonFinal || result.ToolCalls != 4 {
				t.Fatalf("ended %s (%s) after %d calls", result.Reason, result.Detail, result.ToolCalls)
			}
			w.checkCanary(req, run)
			worker.checkCanary(w, req, "NextAction")
		})
	}
}

// TestCanaryOfWrites does so with writes: it is in the arguments, the resource,
// the summary, the model's purpose, the result, and in all that can go wrong.
func TestCanaryOfWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	worker := w.startWatched()
	req := ask("changer", "canary-writes "+canary)
	run := w.start(req)
	for i, decision := range []approval.Decision{approval.Approve, approval.Approve, approval.Approve, approval.Decline} {
		w.until("a plan waits", func() bool {
			return w.number("SELECT count(*) FROM write_plan WHERE run_id = $1", req.RunID) == int64(i+1)
		})
		plan := w.pending(req, bob)
		for what, text := range map[string]string{
			"arguments": string(plan.Arguments), "resource": plan.Resource, "summary": plan.Summary, "purpose": plan.Purpose, "request": plan.Request,
		} {
			if !leaks(text) {
				t.Errorf("the canary is not in the %s, which proves nothing", what)
			}
		}
		w.signal(req, w.token(bob, plan, decision).Text)
	}
	result := w.wait(run)
	if result.Reason != agent.ReasonFinal {
		t.Fatalf("ended %+v", result)
	}
	w.wantRecord(req, "plan 0.0/1 approved by bob, plan 1.0/1 approved by bob, plan 2.0/1 approved by bob, plan 3.0/1 declined by bob, "+
		"write 0.0 performed by commit, write 1.0 not_performed by commit, write 2.0 performed by look_up, "+
		"call 0.0 succeeded, call 1.0 failed failed, call 2.0 succeeded, call 3.0 failed declined")
	if n := w.number("SELECT count(*) FROM tool_call WHERE run_id = $1 AND envelope LIKE '%' || $2 || '%'", req.RunID, canary); n < 3 {
		t.Errorf("the model saw the canary in %d results, which proves nothing", n)
	}
	w.checkCanary(req, run)

	// An end by a failure that speaks of it.
	down := change(changeArgs{Thing: "thing-" + canary, To: canary, Mode: "tool-rights-down-late"})
	run = w.start(down)
	w.approve(down, bob)
	if result := w.wait(run); result.Reason != agent.ReasonAuthorizationUnavailable {
		t.Errorf("ended %+v", result)
	}
	w.checkCanary(down, run)

	// What a stranger writes into a signal is in the history, by the stranger. It
	// goes no further.
	forged := change(changeArgs{Thing: "lamp", To: "on"})
	w.start(forged)
	plan, nonce := w.planned(forged)
	w.signal(forged, canary)
	w.signal(forged, base64url(`{"alg":"none","kid":"`+canary+`"}`)+"."+base64url(`{"sub":"`+canary+`"}`)+".")
	foreign, err := approval.NewKey().Sign(claims(forged, plan, nonce, func(c *approval.Claims) { c.Approver = canary }))
	if err != nil {
		t.Fatal(err)
	}
	w.signal(forged, foreign)
	if codes := w.awaitRefusals(forged, 3); codes != "malformed bad_signature bad_signature" {
		t.Errorf("refusals %s", codes)
	}
	for _, table := range []string{"approval_refusal", "run", "run_transition", "write_intent", "ledger_entry"} {
		if n := w.number("SELECT count(*) FROM "+table+" t WHERE t::text LIKE '%' || $1 || '%'", canary); n != 0 {
			t.Errorf("%d rows of %s hold the canary", n, table)
		}
	}
	worker.checkCanary(w, req, "CommitWrite")
}

// checkCanary searches what Temporal keeps of a run. Only the first event holds
// content: the request.
func (w *world) checkCanary(req agent.RunRequest, run client.WorkflowRun) {
	w.Helper()
	if answer := w.show(req).Answer; !leaks(answer) && !leaks(req.Message) {
		w.Fatal("the canary was never there")
	}
	for i, event := range w.events(req, run.GetRunID()) {
		text, err := protojson.Marshal(event)
		if err != nil {
			w.Fatal(err)
		}
		if found := leaks(string(text)) || leaks(fmt.Sprint(event)) || leaksPayload(event); found != (i == 0) {
			w.Errorf("event %d (%s): the canary is there: %t", i+1, event.EventType, found)
		}
	}
	description, err := w.client.DescribeWorkflow(w.ctx, run.GetID(), "")
	if err != nil {
		w.Fatal(err)
	}
	if leaks(fmt.Sprint(description.RawResponse)) || leaksPayload(description.RawResponse) {
		w.Error("the canary is in memo, search attributes or summary")
	}
	// What runs return is in histories; it must not be in their state either.
	view, err := w.client.QueryWorkflow(w.ctx, run.GetID(), "", agent.QueryState)
	if err != nil {
		w.Fatal(err)
	}
	var raw json.RawMessage
	if err := view.Get(&raw); err != nil || leaks(string(raw)) {
		w.Errorf("the state shows %s, %v", raw, err)
	}
}

// checkCanary searches what the worker says. activity is one that its metrics
// must know.
func (p *watched) checkCanary(w *world, req agent.RunRequest, activity string) {
	w.Helper()
	if status, metrics := p.get("/metrics"); status != http.StatusOK || !strings.Contains(metrics, activity) || leaks(metrics) {
		w.Errorf("the canary is in the metrics, or they prove nothing (status %d)", status)
	}
	if leaks(p.logged.String()) {
		w.Error("the canary is in a log line")
	}
	if !strings.Contains(p.logged.String(), req.RunID) {
		w.Errorf("nothing was logged of this run, which proves nothing:\n%s", p.logged.String())
	}
}

// hidden are the forms that the canary has inside of base64, such as a token's.
var hidden = func() (forms []string) {
	for from := range 3 {
		part := canary[from:]
		forms = append(forms, base64.RawURLEncoding.EncodeToString([]byte(part[:len(part)/3*3])))
	}
	return forms
}()

func leaks(text string) bool {
	for _, form := range hidden {
		if strings.Contains(text, form) {
			return true
		}
	}
	return strings.Contains(text, canary)
}

// leaksPayload searches the wire form, where payloads are plain bytes.
func leaksPayload(m proto.Message) bool {
	data, err := proto.Marshal(m)
	return err != nil || leaks(string(data))
}

// lockedBuffer collects log lines of many goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
