package activities_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/internal/authz"
	"github.com/fairlead/fairlead/internal/vault"
	"github.com/fairlead/fairlead/model/scripted"
	"github.com/fairlead/fairlead/tool"
)

var signingKey = approval.NewKey()

// shelf is what the write tool "put" changes. It is idempotent by key.
type shelf struct {
	mu      sync.Mutex
	version int
	done    map[string]bool
	// executions counts calls of Execute, effects what came of them.
	executions, effects, looks int
	// entered is told of each execution, which then waits for release if that is
	// not nil.
	entered chan struct{}
	release chan struct{}
	// fails is what Execute returns when nothing was done.
	fails error
	// denied is what Authorize returns.
	denied error
}

func (s *shelf) counts() (executions, effects, looks int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.executions, s.effects, s.looks
}

// set changes the shelf's behavior.
func (s *shelf) set(change func(*shelf)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *shelf) tool() tool.Tool {
	type args struct {
		Book string `json:"book"`
	}
	made, err := tool.NewWrite(tool.Spec{
		Name: "put", Version: "3", Description: "Puts a book on the shelf.", Source: "shelf", Trust: tool.Authoritative, Timeout: 5 * time.Second,
		Parameters: json.RawMessage(`{"type":"object","properties":{"book":{"type":"string"}},"required":["book"]}`),
	}, tool.WriteFuncs[args]{
		Prepare: func(_ context.Context, _ tool.Invocation, a args) (tool.Plan, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return tool.Plan{Resource: "shelf/1", Version: fmt.Sprint(s.version), Summary: "Puts " + a.Book + " on the shelf. " + canary}, nil
		},
		Authorize: func(context.Context, tool.Invocation, args) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.denied
		},
		Execute: func(_ context.Context, call tool.Invocation, a args) (tool.Result, error) {
			s.mu.Lock()
			s.executions++
			entered, release := s.entered, s.release
			s.mu.Unlock()
			if entered != nil {
				entered <- struct{}{}
			}
			if release != nil {
				<-release
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.fails != nil {
				return tool.Result{}, s.fails
			}
			if !s.done[call.Key] {
				s.done[call.Key], s.effects, s.version = true, s.effects+1, s.version+1
			}
			return tool.Text("it stands there: " + a.Book + " " + canary), nil
		},
		Find: func(_ context.Context, call tool.Invocation, a args) (tool.Finding, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.looks++
			if s.done[call.Key] {
				return tool.Finding{State: tool.FindPerformed, Result: tool.Text("it stands there: " + a.Book + " " + canary)}, nil
			}
			return tool.Finding{State: tool.FindAbsent}, nil
		},
	})
	if err != nil {
		panic(err)
	}
	return made
}

// write is a run that has proposed to put a book on the shelf.
type write struct {
	*bundle
	begun
	shelf *shelf
	call  agent.Call
}

// proposed returns a run whose write is proposed and not yet planned.
func proposed(t *testing.T) *write {
	t.Helper()
	s := &shelf{done: map[string]bool{}}
	b := setup(t, options{
		tools: []tool.Tool{s.tool()},
		edit:  func(d *definition.Definition) { d.Tools = append(d.Tools, "put") },
		script: scripted.ByStep(
			scripted.Turn{Text: "why not " + canary, Calls: []scripted.Call{{Name: "put", Arguments: `{"book": "` + canary + `"}`}}},
			scripted.Turn{Text: "done " + canary},
		),
	})
	b.cfg.ShutdownGrace = 0
	w := &write{bundle: b, shelf: s}
	b.runs = w.another()
	w.begun = b.start()
	w.call = b.act(w.next(0, 0)).Calls[0]
	t.Cleanup(func() {
		if strings.Contains(b.log.String(), canary) {
			t.Error("the canary is in a log line")
		}
	})
	return w
}

// another returns the activities of another process, which trusts the key.
func (w *write) another() *activities.Runs {
	w.Helper()
	verifier, err := approval.NewVerifier(signingKey.Public())
	if err != nil {
		w.Fatal(err)
	}
	cfg := w.cfg
	cfg.Approvals, cfg.Policies = verifier, authz.Default()
	runs, err := activities.New(cfg)
	if err != nil {
		w.Fatal(err)
	}
	return runs
}

// planned returns a run that waits for a person.
func planned(t *testing.T) *write {
	w := proposed(t)
	if out, err := w.runs.PrepareWrite(w.ctx, w.prepare()); err != nil || out.Plan == nil {
		t.Fatalf("prepared %+v, %v", out, err)
	}
	return w
}

func (w *write) prepare() agent.PrepareWriteInput {
	return agent.PrepareWriteInput{Run: w.ref(), CallID: w.call.ID, ArgumentsHash: w.call.ArgumentsHash}
}

func (w *write) resolve() agent.ResolveWriteInput {
	return agent.ResolveWriteInput{Run: w.ref(), CallID: w.call.ID, ArgumentsHash: w.call.ArgumentsHash}
}

// decision is what the workflow asks with a token of ada, who may decide about
// her own runs.
func (w *write) decision(decision approval.Decision) agent.CommitWriteInput {
	w.Helper()
	state, err := w.db.Write(w.ctx, w.req.Scope(), w.req.RunID, w.call.ID)
	if err != nil {
		w.Fatal(err)
	}
	p, now := state.Plan, time.Now()
	token, err := signingKey.Sign(approval.Claims{
		TokenID: approval.Nonce(), Decision: decision, Approver: "ada", Tenant: "acme", RunID: p.RunID, CallID: p.CallID, Revision: p.Revision,
		Tool: p.Tool, ToolVersion: p.ToolVersion, ArgumentsHash: p.ArgumentsHash, ResourceVersion: p.ResourceVersion, PlanHash: p.Hash,
		Nonce: p.Nonce, IssuedAt: now, ExpiresAt: now.Add(time.Minute),
	})
	if err != nil {
		w.Fatal(err)
	}
	return agent.CommitWriteInput{Run: w.ref(), CallID: w.call.ID, ArgumentsHash: w.call.ArgumentsHash, Revision: p.Revision, Token: token}
}

// told puts an answer into words: "done", "done forbidden", "done, end internal".
func told(out agent.WriteOutcome, err error) string {
	if err != nil {
		return "error"
	}
	words := string(out.State)
	if out.Refusal != "" {
		words += " " + string(out.Refusal)
	}
	if out.Outcome.Error != nil {
		words += " " + string(out.Outcome.Error.Code)
	}
	if out.Outcome.End != "" {
		words += ", end " + string(out.Outcome.End)
	}
	return words
}

// want checks how often the tool was executed and had an effect, and what is on
// record: plans, intents and the call.
func (w *write) want(executions, effects int, record string) {
	w.Helper()
	if gotE, got, _ := w.shelf.counts(); gotE != executions || got != effects {
		w.Errorf("%d executions with %d effects, want %d with %d", gotE, got, executions, effects)
	}
	report := w.show(w.begun)
	var words []string
	for _, p := range report.Plans {
		words = append(words, fmt.Sprintf("plan %d %s", p.Revision, p.Status))
	}
	for _, i := range report.Writes {
		words = append(words, strings.TrimSpace(fmt.Sprintf("write %s sent %d %s", i.Result, i.Sends, i.ResolvedBy)))
	}
	for _, c := range report.Calls() {
		words = append(words, fmt.Sprintf("call %s", c.Status))
	}
	if got := strings.Join(words, ", "); got != record {
		w.Errorf("the record says %q, want %q", got, record)
	}
}

// TestWriteActivitiesTwice executes each activity of a write again, on this
// worker and on another: each time it says the same, and nothing more happens.
func TestWriteActivitiesTwice(t *testing.T) {
	t.Parallel()
	w := proposed(t)
	other := w.another()
	var plans []agent.PreparedWrite
	for _, runs := range []*activities.Runs{w.runs, other, w.runs} {
		out, err := runs.PrepareWrite(w.ctx, w.prepare())
		if err != nil || out.Plan == nil {
			t.Fatalf("prepared %+v, %v", out, err)
		}
		plans = append(plans, out)
	}
	if *plans[0].Plan != *plans[1].Plan || *plans[0].Plan != *plans[2].Plan {
		t.Errorf("three plans: %+v, %+v, %+v", plans[0].Plan, plans[1].Plan, plans[2].Plan)
	}
	w.want(0, 0, "plan 1 pending, call proposed")

	bad := w.decision(approval.Approve)
	bad.Token = bad.Token[:len(bad.Token)-10]
	for _, runs := range []*activities.Runs{w.runs, other} {
		if got := told(runs.CommitWrite(w.ctx, bad)); got != "refused bad_signature" {
			t.Errorf("a bad token: %s", got)
		}
		// Nothing has begun, whoever asks.
		if got := told(runs.ResolveWrite(w.ctx, w.resolve())); got != "not_begun" {
			t.Errorf("resolved: %s", got)
		}
	}

	good := w.decision(approval.Approve)
	first, err := w.runs.CommitWrite(w.ctx, good)
	if got := told(first, err); got != "done" || first.Outcome.ResultHash == "" || !first.Deadline.After(w.out.Deadline) {
		t.Fatalf("committed %+v, %s", first, got)
	}
	const record = "plan 1 approved, write performed sent 1 commit, call succeeded"
	w.want(1, 1, record)
	for what, again := range map[string]func(*activities.Runs) (agent.WriteOutcome, error){
		"commit":        func(r *activities.Runs) (agent.WriteOutcome, error) { return r.CommitWrite(w.ctx, good) },
		"another token": func(r *activities.Runs) (agent.WriteOutcome, error) { return r.CommitWrite(w.ctx, bad) },
		"resolve":       func(r *activities.Runs) (agent.WriteOutcome, error) { return r.ResolveWrite(w.ctx, w.resolve()) },
		"expire": func(r *activities.Runs) (agent.WriteOutcome, error) {
			return r.ExpirePlan(w.ctx, agent.ExpirePlanInput{Run: w.ref(), CallID: w.call.ID, Revision: 1})
		},
	} {
		for _, runs := range []*activities.Runs{w.runs, other} {
			if out, err := again(runs); told(out, err) != "done" || out.Outcome != first.Outcome || !out.Deadline.Equal(first.Deadline) {
				t.Errorf("%s again: %+v, %v, want %+v", what, out, err, first)
			}
		}
	}
	if out, err := other.PrepareWrite(w.ctx, w.prepare()); err != nil || out.Outcome == nil || *out.Outcome != first.Outcome {
		t.Errorf("prepared again: %+v, %v", out, err)
	}
	w.want(1, 1, record)
	// The key is made of what it should be made of, with nothing in between that
	// could be moved.
	sum := sha256.Sum256([]byte("acme\n" + w.req.RunID + "\n0.0\nput\n3"))
	if key := w.show(w.begun).Writes[0].Key; key != hex.EncodeToString(sum[:]) {
		t.Errorf("key %s", key)
	}
}

// TestDeclineAndExpiryTwice: what ended without an effect stays so.
func TestDeclineAndExpiryTwice(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ says, record string }{
		"decline": {"done declined", "plan 1 declined, call failed"},
		"expire":  {"done not_confirmed", "plan 1 expired, call failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := planned(t)
			yes, no := w.decision(approval.Approve), w.decision(approval.Decline)
			if got := told(w.runs.ExpirePlan(w.ctx, agent.ExpirePlanInput{Run: w.ref(), CallID: w.call.ID, Revision: 2})); got != "stale" {
				t.Errorf("a plan that is not the newest: %s", got)
			}
			for range 2 {
				for _, runs := range []*activities.Runs{w.runs, w.another()} {
					var got string
					if name == "decline" {
						got = told(runs.CommitWrite(w.ctx, no))
					} else {
						got = told(runs.ExpirePlan(w.ctx, agent.ExpirePlanInput{Run: w.ref(), CallID: w.call.ID, Revision: 1}))
					}
					if got != test.says {
						t.Errorf("it says %q, want %q", got, test.says)
					}
					// An approval that comes after it is too late.
					if got := told(runs.CommitWrite(w.ctx, yes)); got != test.says {
						t.Errorf("an approval afterwards: %s", got)
					}
				}
			}
			w.want(0, 0, test.record)
		})
	}
}

// TestOtherHashIsAConflict: the same key with other arguments is no repetition
// (WRITE-3). Nothing is performed, and no recorded result is handed out for it.
func TestOtherHashIsAConflict(t *testing.T) {
	t.Parallel()
	other := strings.Repeat("ab", 32)
	conflicts := func(w *write) {
		w.Helper()
		commit, resolve, prepare := w.decision(approval.Approve), w.resolve(), w.prepare()
		commit.ArgumentsHash, resolve.ArgumentsHash, prepare.ArgumentsHash = other, other, other
		const want = "done, end internal"
		if got := told(w.runs.CommitWrite(w.ctx, commit)); got != want {
			w.Errorf("commit: %s", got)
		}
		if got := told(w.runs.ResolveWrite(w.ctx, resolve)); got != want {
			w.Errorf("resolve: %s", got)
		}
		if out, err := w.runs.PrepareWrite(w.ctx, prepare); err != nil || out.Outcome == nil || out.Outcome.End != agent.ReasonInternal || out.Outcome.ResultHash != "" {
			w.Errorf("prepare: %+v, %v", out, err)
		}
	}
	w := planned(t)
	conflicts(w)
	w.want(0, 0, "plan 1 pending, call proposed")
	if got := told(w.runs.CommitWrite(w.ctx, w.decision(approval.Approve))); got != "done" {
		t.Errorf("the right hash: %s", got)
	}
	conflicts(w)
	w.want(1, 1, "plan 1 approved, write performed sent 1 commit, call succeeded")

	t.Run("recorded arguments that changed", func(t *testing.T) {
		t.Parallel()
		w := planned(t)
		good := w.decision(approval.Approve)
		keys, err := w.db.Keys(w.ctx, vault.Owner{Tenant: w.req.Tenant, Subject: w.req.User})
		if err != nil {
			t.Fatal(err)
		}
		sealed, err := keys.Seal([]byte(`{"book":"another"}`), vault.Bind("tool_call", w.req.Tenant, w.req.RunID, "0.0", "arguments"))
		if err != nil {
			t.Fatal(err)
		}
		w.exec(`UPDATE tool_call SET arguments = $2 WHERE run_id = $1`, w.req.RunID, sealed)
		if got := told(w.runs.CommitWrite(w.ctx, good)); got != "done, end internal" {
			t.Errorf("commit: %s", got)
		}
		w.want(0, 0, "plan 1 pending, call proposed")
	})
	t.Run("a plan that changed", func(t *testing.T) {
		t.Parallel()
		w := planned(t)
		good := w.decision(approval.Approve)
		for column, value := range map[string]string{"hash": other, "nonce": "another", "resource_version": "7", "arguments_hash": other} {
			w.exec("UPDATE write_plan SET "+column+" = $2 WHERE run_id = $1", w.req.RunID, value)
			if got := told(w.runs.CommitWrite(w.ctx, good)); got != "refused wrong_plan" {
				t.Errorf("commit with another %s: %s", column, got)
			}
		}
		w.want(0, 0, "plan 1 pending, call proposed")
	})
	t.Run("an intent that is there", func(t *testing.T) {
		t.Parallel()
		w := planned(t)
		good := w.decision(approval.Approve)
		// The key of another run, as if two of them could have the same.
		w.exec(`INSERT INTO write_intent (tenant, key, run_id, call_id, revision, arguments_hash, approved_by, policy_digest, recorded_at, sent_at, decisive_at)
			SELECT tenant, $2, run_id, call_id, revision, $3, 'eve', policy_digest, now(), now(), now() FROM write_plan WHERE run_id = $1`,
			w.req.RunID, activities.IdempotencyKey("acme", w.req.RunID, "0.0", "put", "3"), other)
		if got := told(w.runs.CommitWrite(w.ctx, good)); got == "done" {
			t.Error("a second intent under one key")
		}
		w.want(0, 0, "plan 1 pending, write open sent 1, call proposed")
	})
}
