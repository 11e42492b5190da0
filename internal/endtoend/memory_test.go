package endtoend

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/sdk/client"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/model"
)

const (
	defaultKey   = "preference.default_environment"
	setDefault   = "From now on default to production."
	howIsIt      = "How is payment-api?"
	howInStaging = "How is payment-api in staging?"
)

// job starts a workflow of the memory's and waits for its result.
func (w *world) job(id, workflow string, input, result any) {
	w.Helper()
	run, err := w.client.ExecuteWorkflow(w.ctx, client.StartWorkflowOptions{ID: id, TaskQueue: w.queue}, workflow, input)
	if err == nil {
		err = run.Get(w.ctx, result)
	}
	if err != nil {
		w.Fatalf("%s: %v", workflow, err)
	}
}

// confirmMemory waits until something waits for the user's confirmation, confirms
// it, and waits for what comes of it.
func (w *world) confirmMemory(user approval.Approver) (shown approval.Memory, candidate db.MemoryCandidate) {
	w.Helper()
	office := w.office()
	w.until("a memory waits for "+user.User, func() bool {
		found, err := office.PendingMemories(w.ctx, user, approval.MemoryFilter{})
		if err != nil {
			w.Fatal(err)
		}
		if len(found.Confirm) > 0 {
			shown = found.Confirm[0]
		}
		return shown.ID != ""
	})
	token, err := office.ConfirmMemory(w.ctx, user, shown)
	if err == nil {
		err = office.Send(w.ctx, w.client, token)
	}
	if err != nil {
		w.Fatal(err)
	}
	w.until("the memory is decided about", func() bool {
		if candidate, err = w.db.CandidateOfTenant(w.ctx, user.Tenant, shown.ID); err != nil {
			w.Fatal(err)
		}
		return candidate.State.Final()
	})
	return shown, candidate
}

// inConversation says something in a conversation of its own.
func (k *talk) inConversation(message string) agent.RunRequest {
	k.Helper()
	k.conversation = "talk-" + uuid.NewString()
	return k.say(message)
}

func (k *talk) answer(req agent.RunRequest) string { return k.show(req).Answer }

// looked is the service that a run looked at, "" if none.
func (k *talk) looked(req agent.RunRequest) string {
	k.Helper()
	for _, c := range k.show(req).Calls() {
		if c.Tool == "service_status" {
			_, call, err := k.db.ToolCall(k.ctx, req.Scope(), req.RunID, c.ID)
			if err != nil {
				k.Fatal(err)
			}
			var arguments struct {
				ServiceID string `json:"service_id"`
			}
			if err := json.Unmarshal([]byte(call.Arguments), &arguments); err != nil {
				k.Fatal(err)
			}
			return arguments.ServiceID
		}
	}
	return ""
}

// TestMemoryOfOpsPilot is a preference's whole life: it is learned in one
// conversation, confirmed as it was shown, used in the next and overridden by
// present words, traced from one answer to the words that it comes from, corrected,
// forgotten, and its user erased.
func TestMemoryOfOpsPilot(t *testing.T) {
	t.Parallel()
	k := newTalk(t)
	newClinicIn(k, k.clinic.dir, "staging")
	ann := approval.Approver{Tenant: "acme", User: "ann"}

	// Without it nobody knows which one is meant.
	if first := k.say(howIsIt); k.looked(first) != "" || !strings.Contains(k.answer(first), "payment-api (production), payment-api (staging)") {
		t.Fatalf("without a memory the answer is %s", k.answer(first))
	}
	learned := k.inConversation(setDefault)
	shown, stored := k.confirmMemory(ann)
	if shown.Key != defaultKey || string(shown.Value) != `"production"` || shown.Purpose == "" || shown.Scope != (agent.MemoryScope{Kind: agent.MemoryOfUser, ID: "ann"}) ||
		shown.Quote != strings.TrimSuffix(setDefault, ".") || shown.DecideUntil.IsZero() {
		t.Errorf("the user was shown %+v", shown)
	}
	if stored.State != agent.MemoryStored || stored.Content != nil || stored.DecidedBy != "ann" {
		t.Errorf("what came of it is %+v", stored)
	}

	used := k.inConversation(howIsIt)
	if k.looked(used) != "payment-api.production" || !strings.Contains(k.answer(used), "(memory "+stored.Record+")") {
		t.Errorf("in the next conversation it looked at %q:\n%s", k.looked(used), k.answer(used))
	}
	// IDs and the date of the confirmation are another ones each time.
	records, err := k.db.Memories(k.ctx, "acme", "ann", db.MemoryFilter{})
	if err != nil || len(records) != 1 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	remembered := k.model.at(t, howIsIt, 0)
	for _, asked := range k.model.all(howIsIt) {
		if slices.ContainsFunc(asked.Messages, func(m model.Message) bool { return strings.Contains(m.Text, stored.Record) }) {
			remembered = asked
			break
		}
	}
	goldenRequest(k, "remembered", remembered, stored.Record, "<memory>", records[0].WrittenAt.Format(time.DateOnly), "<day>")
	over := k.inConversation(howInStaging)
	if k.looked(over) != "payment-api.staging" || strings.Contains(k.answer(over), "memory") {
		t.Errorf("against present words it looked at %q:\n%s", k.looked(over), k.answer(over))
	}

	// S3 §11: from one answer to its cause, and to all that it caused.
	given, err := k.db.RunMemories(k.ctx, "acme", "", used.RunID)
	if err != nil || len(given) != 1 || given[0].Record != stored.Record {
		t.Fatalf("the run was given %+v, %v", given, err)
	}
	trace, err := k.db.TraceMemory(k.ctx, "acme", "", stored.Record)
	if err != nil {
		t.Fatal(err)
	}
	v := trace.Versions[0]
	if v.Validation != agent.MemoryUserConfirmed || v.SourceType != agent.SourceUserStatement || v.RunID != learned.RunID || len(v.Rules) == 0 || v.PolicyVersion == "" ||
		!strings.Contains(v.Writer, "opspilot") || trace.Source == nil || trace.Source.Content != setDefault {
		t.Errorf("the trace says %+v, source %+v", v, trace.Source)
	}
	var influenced []string
	for _, i := range trace.Influences {
		influenced = append(influenced, i.RunID)
	}
	if !slices.Contains(influenced, used.RunID) || !slices.Contains(influenced, over.RunID) || slices.Contains(influenced, learned.RunID) {
		t.Errorf("it influenced %v", influenced)
	}

	k.correct(ann, stored.Record, "staging")
	if corrected := k.inConversation(howIsIt); k.looked(corrected) != "payment-api.staging" {
		t.Errorf("after the correction it looked at %q", k.looked(corrected))
	}
	if trace, err = k.db.TraceMemory(k.ctx, "acme", "", stored.Record); err != nil || len(trace.Versions) != 2 || trace.Source == nil || trace.Source.Content != setDefault {
		t.Errorf("after the correction the trace has %d versions, source %+v, %v", len(trace.Versions), trace.Source, err)
	}

	room := agent.MemoryRoom{Scope: agent.Scope{Tenant: "acme", User: "ann", Environment: "production"}}
	var receipt agent.ErasureReceipt
	k.job(agent.ForgetWorkflowID("acme", "forget-1"), agent.WorkflowForgetMemory, agent.ForgetInput{ID: "forget-1", Room: room, Record: stored.Record, By: "ann"}, &receipt)
	if receipt.Records != 1 || receipt.Versions != 2 {
		t.Errorf("the receipt is %+v", receipt)
	}
	if forgotten := k.inConversation(howIsIt); k.looked(forgotten) != "" {
		t.Errorf("after it was forgotten it looked at %q", k.looked(forgotten))
	}
	if n := k.number("SELECT (SELECT count(*) FROM memory_vector) + (SELECT count(*) FROM memory_keyword) + (SELECT count(*) FROM memory_record WHERE value IS NOT NULL)"); n != 0 {
		t.Errorf("%d pieces of it are left", n)
	}
}

// correct proposes another value as the user's own act, and confirms it if that
// is asked for.
func (k *talk) correct(user approval.Approver, record, value string) {
	k.Helper()
	old, err := k.db.Memory(k.ctx, user.Tenant, user.User, record)
	if err != nil {
		k.Fatal(err)
	}
	text, err := json.Marshal(value)
	if err != nil {
		k.Fatal(err)
	}
	in := agent.MemoryWriteInput{
		ID:   "correct-" + uuid.NewString(),
		Room: agent.MemoryRoom{Scope: agent.Scope{Tenant: user.Tenant, User: user.User, Environment: old.Environment}},
		Candidate: &agent.MemoryCandidate{
			Kind: old.Kind, Key: old.Key, Value: text, Scope: old.Scope, SourceType: agent.SourceUserCorrection, SourceID: record, Writer: "user:" + user.User,
		},
	}
	run, err := k.client.ExecuteWorkflow(k.ctx, client.StartWorkflowOptions{ID: agent.MemoryWriteWorkflowID(user.Tenant, in.ID), TaskQueue: k.queue}, agent.WorkflowMemoryWrite, in)
	if err != nil {
		k.Fatal(err)
	}
	var c db.MemoryCandidate
	k.until("the correction is judged", func() bool {
		if c, err = k.db.CandidateOfTenant(k.ctx, user.Tenant, in.ID); err != nil {
			return false
		}
		return c.State != agent.MemoryProposed
	})
	if c.State == agent.MemoryWaitingConfirmation {
		k.confirmMemory(user)
	}
	var verdict agent.MemoryVerdict
	if err := run.Get(k.ctx, &verdict); err != nil || verdict.State != agent.MemoryStored || verdict.Record != record || verdict.Version != old.Version+1 {
		k.Fatalf("the correction came to %+v, %v", verdict, err)
	}
}
