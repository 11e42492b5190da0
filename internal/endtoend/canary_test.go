package endtoend

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
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

// TestCanaryOfWrites sends one string through what a write is made of: the
// arguments, the resource, the summary, the model's purpose, the result, and all
// that can go wrong.
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
	if seen := w.seen(req); strings.Count(seen, canary) < 3 {
		t.Errorf("the model saw the canary in %d results, which proves nothing", strings.Count(seen, canary))
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

	// What a stranger without keys writes into a signal would be in the history, by
	// the stranger. It goes no further.
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

// seen is what the model was shown of the results of a run.
func (w *world) seen(req agent.RunRequest) string {
	w.Helper()
	var seen strings.Builder
	err := w.db.InTx(w.ctx, req.Scope(), func(tx *db.Tx) error {
		state, err := tx.LoadStep(w.ctx, db.StepQuery{RunID: req.RunID, Step: 100, MaxExchanges: 100})
		for _, e := range state.Exchanges {
			for _, r := range e.Results {
				fmt.Fprintln(&seen, r.Envelope)
			}
		}
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	return seen.String()
}

// checkCanary searches what Temporal keeps of a run.
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
		if leaks(string(text)) || leaks(fmt.Sprint(event)) || leaksPayload(event) {
			w.Errorf("event %d (%s) holds the canary", i+1, event.EventType)
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

// forms are the ways in which one secret can stand in a text: as it is, escaped
// in JSON, in base64 among other bytes, and each of these in hexadecimal.
type forms []string

func formsOf(secrets ...string) (f forms) {
	for _, secret := range secrets {
		var unescaped strings.Builder
		encoder := json.NewEncoder(&unescaped)
		encoder.SetEscapeHTML(false)
		escaped, err := json.Marshal(secret)
		if err = errors.Join(err, encoder.Encode(secret)); err != nil {
			panic(err)
		}
		for _, quoted := range []string{string(escaped), strings.TrimSpace(unescaped.String()), strconv.QuoteToASCII(secret)} {
			f = append(f, quoted[1:len(quoted)-1])
		}
		f = append(f, secret)
		for from := range 3 {
			part := []byte(secret[from:])
			part = part[:len(part)/3*3]
			f = append(f, base64.RawURLEncoding.EncodeToString(part), base64.RawStdEncoding.EncodeToString(part))
		}
	}
	for _, form := range f {
		f = append(f, hex.EncodeToString([]byte(form)))
	}
	slices.Sort(f)
	return slices.Compact(f)
}

// in reports whether the secret is in a text, or in bytes.
func (f forms) in(text string) bool {
	return slices.ContainsFunc(f, func(form string) bool { return strings.Contains(text, form) })
}

var canaryForms = formsOf(canary)

func leaks(text string) bool { return canaryForms.in(text) }

// TestLeaks: what finds no form of a secret proves nothing.
func TestLeaks(t *testing.T) {
	t.Parallel()
	f := formsOf(`"ß7f3a" <tide>`)
	for _, text := range []string{
		`He said: "ß7f3a" <tide>!`,
		`{"said":"\"ß7f3a\" <tide>"}`,
		`{"said":"\"ß7f3a\" \u003ctide\u003e"}`,
		`{"said":"\"\u00df7f3a\" <tide>"}`,
		"eyJzYWlkIjoiIsOfN2YzYSIgPHRpZGU+In0=",
		"LiLDnzdmM2EiIDx0aWRlPi4=",
		"Li4iw583ZjNhIiA8dGlkZT4u",             // with two bytes before it
		`\x2e22c39f3766336122203c746964653e2e`, // in a bytea
		"\x00\x01\"ß7f3a\" <tide>\xff",
	} {
		if !f.in(text) {
			t.Errorf("it is not found in %s", text)
		}
	}
	for _, text := range []string{"", "ß7f3a", "7f3a <tide>", `"SS7f3a" <tide>`} {
		if f.in(text) {
			t.Errorf("it is found in %s", text)
		}
	}
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
