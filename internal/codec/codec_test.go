package codec_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/sdk/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/codec"
	"github.com/fairlead/fairlead/internal/vault"
)

const canary = "canary-9f21-restart-payment-api"

var (
	scope   = agent.Scope{Tenant: "acme", User: "ann", Environment: "test"}
	room    = agent.MemoryRoom{Scope: scope, Conversation: "c-1"}
	ref     = agent.RunRef{Scope: scope, RunID: "run-1", Generation: 1}
	request = agent.RunRequest{
		RunID: "run-1", Tenant: "acme", User: "ann", Conversation: "c-1", Agent: "opspilot", Environment: "test", Message: canary,
		Session: &agent.SessionChange{Facts: []agent.ConfirmedFact{{Key: "service", Value: canary}}},
	}
)

// carried has the shape of what a run takes along into its next history.
type carried struct {
	Loop  any          `json:"loop"`
	Ref   agent.RunRef `json:"ref"`
	Words []string     `json:"words"`
}

// TestOwners says under whose keys each kind of payload goes, and that it comes
// back as it was.
func TestOwners(t *testing.T) {
	t.Parallel()
	names := map[string]any{"tenant": "acme", "user": "ann"}
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		value any
		owner vault.Owner
	}{
		"RunRequest":           {request, ann},
		"a pointer to it":      {&request, ann},
		"BeginRunInput":        {agent.BeginRunInput{Request: request, StartedAt: at}, ann},
		"NextActionInput":      {agent.NextActionInput{Run: ref, Model: canary}, ann},
		"ReadToolInput":        {agent.ReadToolInput{Run: ref, CallID: canary}, ann},
		"PrepareWriteInput":    {agent.PrepareWriteInput{Run: ref, CallID: canary}, ann},
		"CommitWriteInput":     {agent.CommitWriteInput{Run: ref, Token: canary}, ann},
		"ResolveWriteInput":    {agent.ResolveWriteInput{Run: ref, CallID: canary}, ann},
		"ExpirePlanInput":      {agent.ExpirePlanInput{Run: ref, CallID: canary}, ann},
		"RefuseApprovalsInput": {agent.RefuseApprovalsInput{Run: ref, Tokens: []string{canary}}, ann},
		"EndRunInput":          {agent.EndRunInput{Run: ref, Detail: canary}, ann},
		"SummarizeInput":       {agent.SummarizeInput{Scope: scope, Conversation: canary}, ann},
		"Carried":              {carried{Ref: ref, Words: []string{canary}}, ann},
		"Scope":                {scope, ann},
		"RunRef":               {ref, ann},

		// A proposed memory goes with its user's keys; what only names one is read
		// after them as well.
		"MemoryWriteInput":  {agent.MemoryWriteInput{ID: "m-1", Room: room, Candidate: &agent.MemoryCandidate{Quote: canary}}, ann},
		"a memory's ID":     {agent.MemoryWriteInput{ID: canary, Room: room}, deployment},
		"SettleMemoryInput": {agent.SettleMemoryInput{ID: "m-1", Room: room, Token: canary}, deployment},
		"LearnInput":        {agent.LearnInput{Run: ref, Room: agent.MemoryRoom{Scope: ref.Scope}, DefinitionDigest: canary}, deployment},
		"MemoryVerdict":     {agent.MemoryVerdict{ID: canary}, deployment},
		"ForgetInput":       {agent.ForgetInput{ID: canary, Room: room}, deployment},
		"EraseInput":        {agent.EraseInput{ID: canary, Tenant: "acme", User: "ann"}, deployment},
		"ErasureReceipt":    {agent.ErasureReceipt{ID: canary, Tenant: "acme", Subject: "ann"}, deployment},

		"BeginRunOutput":     {agent.BeginRunOutput{Detail: canary}, deployment},
		"Action":             {agent.Action{Kind: agent.ActionFinal, AnswerMessageID: canary}, deployment},
		"ToolOutcome":        {agent.ToolOutcome{CallID: canary}, deployment},
		"PreparedWrite":      {agent.PreparedWrite{Plan: &agent.PlanRef{CallID: canary}}, deployment},
		"WriteOutcome":       {agent.WriteOutcome{Outcome: agent.ToolOutcome{CallID: canary}}, deployment},
		"RunResult":          {agent.RunResult{RunID: canary}, deployment},
		"EndRunOutput":       {agent.EndRunOutput{RunResult: agent.RunResult{RunID: canary}}, deployment},
		"SummarizeOutput":    {agent.SummarizeOutput{Failure: canary}, deployment},
		"Approval":           {agent.Approval{Token: canary}, deployment},
		"Supersession":       {agent.Supersession{ByRunID: canary}, deployment},
		"RunView":            {agent.RunView{RunID: canary}, deployment},
		"no such owner":      {map[string]any{"tenant": "ac me", "user": "ann", "text": canary}, deployment},
		"a tenant alone":     {map[string]any{"tenant": "acme", "text": canary}, deployment},
		"deeper than agreed": {map[string]any{"in": map[string]any{"scope": names}, "text": canary}, deployment},
		"other types":        {map[string]any{"tenant": 1, "run": canary, "scope": []string{canary}}, deployment},
		"beside other types": {map[string]any{"tenant": "acme", "user": "ann", "run": canary}, ann},
		"an invalid one":     {map[string]any{"tenant": "", "user": "", "scope": names, "text": canary}, ann},
		"a list":             {[]string{canary}, deployment},
		"bytes":              {[]byte(canary), deployment},
		"a number":           {4711, deployment},
		"a message":          {&common.WorkflowType{Name: canary}, deployment},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := newStore(t).program()
			c := codec.DataConverter(source)
			p := payload(t, c, test.value)
			if got := (vault.Owner{Tenant: metadata(p, "tenant"), Subject: metadata(p, "subject")}); got != test.owner || metadata(p, "encoding") != "binary/encrypted" || len(p.Metadata) != 3 {
				t.Errorf("sealed as %v for %+v, want %+v", p.Metadata, got, test.owner)
			}
			if strings.Contains(p.String(), "canary") {
				t.Error("the payload holds its content")
			}
			if bytes.Equal(p.Data, payload(t, c, test.value).Data) {
				t.Error("the same value is sealed to the same bytes")
			}
			keys, err := source.Keys(t.Context(), test.owner)
			if err != nil {
				t.Fatal(err)
			}
			plain, err := keys.Open(p.Data, vault.Bind("payload", test.owner.Tenant, test.owner.Subject))
			if err != nil {
				t.Fatal(err)
			}
			var original common.Payload
			if err := proto.Unmarshal(plain, &original); err != nil || !proto.Equal(&original, payload(t, converter.GetDefaultDataConverter(), test.value)) {
				t.Errorf("sealed was %v, %v", &original, err)
			}
			// What comes back is what came in.
			target := reflect.New(reflect.TypeOf(test.value))
			if err := c.FromPayload(p, target.Interface()); err != nil {
				t.Fatal(err)
			}
			if got, want := fmt.Sprintf("%+v", payload(t, converter.GetDefaultDataConverter(), target.Elem().Interface())), fmt.Sprintf("%+v", &original); got != want {
				t.Errorf("came back as %s, want %s", got, want)
			}
		})
	}
}

// What an operator reads, and what is nothing, stays as it is, and needs no keys.
func TestReadable(t *testing.T) {
	t.Parallel()
	source := newStore(t).program()
	source.always = db.ErrUnavailable
	c := codec.DataConverter(source)
	for name, value := range map[string]any{
		"a summary": "step 1: gpt-4o-mini", "an empty string": "", "a quote": `"`, "nothing": nil, "a nil pointer": (*agent.RunRequest)(nil), "no bytes": []byte{},
		"a description": &sdk.WorkflowMetadata{CurrentDetails: "**running**"},
	} {
		plain := payload(t, converter.GetDefaultDataConverter(), value)
		p, err := c.ToPayload(value)
		if err != nil || !proto.Equal(p, plain) {
			t.Errorf("%s became %v, %v", name, p, err)
		}
	}
	// As the SDK answers the Web UI's question.
	description := payload(t, converter.GetDefaultDataConverter(), &sdk.WorkflowMetadata{CurrentDetails: "**running**"})
	if p := payload(t, c, converter.NewRawValue(description)); !proto.Equal(p, description) {
		t.Errorf("the description became %v", p)
	}
	if source.asked != 0 {
		t.Errorf("keys were asked for %d times", source.asked)
	}
}

func TestPlainPayloadsPass(t *testing.T) {
	t.Parallel()
	source := newStore(t).program()
	source.always = db.ErrUnavailable
	c := codec.DataConverter(source)
	var got agent.RunRequest
	if err := c.FromPayload(payload(t, converter.GetDefaultDataConverter(), request), &got); err != nil || got.Message != canary {
		t.Errorf("%+v, %v", got, err)
	}
	if err := c.FromPayload(nil, &got); err != nil {
		t.Error(err)
	}
	if err := c.FromPayloads(nil, &got); err != nil {
		t.Error(err)
	}
}

func TestSeveralPayloads(t *testing.T) {
	t.Parallel()
	c := codec.DataConverter(newStore(t).program())
	payloads, err := c.ToPayloads(request, "summary", nil, ref)
	if err != nil {
		t.Fatal(err)
	}
	var got agent.RunRequest
	var summary string
	if err := c.FromPayloads(payloads, &got, &summary); err != nil || got.Message != canary || summary != "summary" {
		t.Errorf("%+v, %q, %v", got, summary, err)
	}
	if lines := c.ToStrings(payloads); len(lines) != 4 || !strings.Contains(lines[0], canary) || lines[1] != `"summary"` {
		t.Errorf("%q", lines)
	}
	if got := c.ToString(payloads.Payloads[3]); !strings.Contains(got, "run-1") {
		t.Errorf("%q", got)
	}
}

func TestDestroyedKeys(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	c := codec.DataConverter(s.program())
	sealed, result := payload(t, c, request), payload(t, c, agent.RunResult{RunID: "run-1"})
	s.destroy(ann)
	var got agent.RunRequest
	err := c.FromPayload(sealed, &got)
	if !errors.Is(err, db.ErrKeysDestroyed) || !strings.Contains(err.Error(), "user ann of tenant acme") || got.Message != "" {
		t.Errorf("%+v, %v", got, err)
	}
	var later *converter.WorkflowTaskFailureError
	if errors.As(err, &later) {
		t.Error("a workflow task is tried again for keys that never come back")
	}
	if _, err := c.ToPayload(request); !errors.Is(err, db.ErrKeysDestroyed) {
		t.Errorf("sealed under destroyed keys: %v", err)
	}
	var other agent.RunResult
	if err := c.FromPayload(result, &other); err != nil || other.RunID != "run-1" {
		t.Errorf("what belongs to nobody: %+v, %v", other, err)
	}
}

func TestDamagedPayloads(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	c := codec.DataConverter(s.program())
	good := payload(t, c, request)
	bob := request
	bob.User = "bob"
	other := payload(t, c, bob)
	owners := s.owners()
	edit := func(change func(p *common.Payload)) *common.Payload {
		p := proto.Clone(good).(*common.Payload)
		change(p)
		return p
	}
	for name, p := range map[string]*common.Payload{
		"a byte changed":     edit(func(p *common.Payload) { p.Data[40] ^= 1 }),
		"cut":                edit(func(p *common.Payload) { p.Data = p.Data[:20] }),
		"nothing":            edit(func(p *common.Payload) { p.Data = nil }),
		"another's data":     edit(func(p *common.Payload) { p.Data = other.Data }),
		"another's name":     edit(func(p *common.Payload) { p.Metadata["subject"] = []byte("bob") }),
		"nobody's":           edit(func(p *common.Payload) { delete(p.Metadata, "tenant") }),
		"the deployment's":   edit(func(p *common.Payload) { delete(p.Metadata, "tenant"); delete(p.Metadata, "subject") }),
		"an impossible name": edit(func(p *common.Payload) { p.Metadata["subject"] = []byte("ann\nx") }),
	} {
		var got agent.RunRequest
		if err := c.FromPayload(p, &got); !errors.Is(err, vault.ErrSealed) || got.Message != "" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		// Who asks for the payload itself gets it as it is.
		var raw converter.RawValue
		if err := c.FromPayloads(&common.Payloads{Payloads: []*common.Payload{p}}, &raw); err != nil || !proto.Equal(raw.Payload(), p) {
			t.Errorf("%s, raw: %v, %v", name, raw.Payload(), err)
		}
	}
	if got := s.owners() - owners; got != 0 {
		t.Errorf("damaged payloads made keys for %d owners", got)
	}
	var raw converter.RawValue
	if err := c.FromPayload(good, &raw); err != nil || !strings.Contains(string(raw.Payload().Data), canary) {
		t.Errorf("a good payload, raw: %v, %v", raw.Payload(), err)
	}
	// Sealed once is sealed.
	if p := payload(t, c, converter.NewRawValue(good)); !proto.Equal(p, good) {
		t.Error("a sealed payload was sealed again")
	}
}

// Who sends a payload says whose it is. Opening it makes no keys for a name that
// somebody invented, and does not ask on.
func TestInventedOwners(t *testing.T) {
	t.Parallel()
	source := newStore(t).program()
	c := codec.DataConverter(source)
	for _, owner := range []vault.Owner{{}, {Tenant: "acme", Subject: "nobody"}} {
		source.fail(nil)
		p := &common.Payload{
			Metadata: map[string][]byte{"encoding": []byte(codec.Encoding), "tenant": []byte(owner.Tenant), "subject": []byte(owner.Subject)},
			Data:     []byte("junk"),
		}
		var got agent.RunRequest
		err := c.FromPayload(p, &got)
		if !errors.Is(err, vault.ErrSealed) || source.requests() > 2 || source.owners() != 0 {
			t.Errorf("%+v: %v after %d requests, %d owners have keys", owner, err, source.requests(), source.owners())
		}
		var later *converter.WorkflowTaskFailureError
		if errors.As(err, &later) {
			t.Errorf("%+v: a workflow task is tried again for keys that nobody made", owner)
		}
	}
}

// A program that has keys in memory reads what another one sealed under newer
// ones.
func TestRotatedElsewhere(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	here := codec.DataConverter(s.program())
	old := payload(t, here, request)
	s.rotate(t, ann)
	newer := payload(t, codec.DataConverter(s.program()), request)
	for name, p := range map[string]*common.Payload{"new": newer, "old": old} {
		var got agent.RunRequest
		if err := here.FromPayload(p, &got); err != nil || got.Message != canary {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestKeysAreWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		source := s.program()
		source.errs = []error{db.ErrUnavailable, db.ErrUnavailable, db.ErrConflict}
		c := codec.DataConverter(source)
		began := time.Now()
		var got agent.RunRequest
		if err := c.FromPayload(payload(t, c, request), &got); err != nil || got.Message != canary {
			t.Errorf("%+v, %v", got, err)
		}
		// 50 + 100 + 200 ms.
		if took := time.Since(began); took != 350*time.Millisecond {
			t.Errorf("took %s", took)
		}

		source.always = db.ErrUnavailable
		began = time.Now()
		_, err := c.ToPayload(request)
		var later *converter.WorkflowTaskFailureError
		if !errors.As(err, &later) || !errors.Is(err, db.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took > 5*time.Second || took < 3*time.Second {
			t.Errorf("gave up after %s", took)
		}

		source.always = db.ErrNoVault
		began = time.Now()
		if _, err := c.ToPayload(request); !errors.Is(err, db.ErrNoVault) || time.Since(began) != 0 {
			t.Errorf("without a key: %v after %s", err, time.Since(began))
		}
	})
}

// The deployment's keys serve while the database is away: nobody destroys them.
func TestDeploymentKeysAreKept(t *testing.T) {
	t.Parallel()
	source := newStore(t).program()
	c := codec.DataConverter(source)
	p := payload(t, c, agent.RunView{RunID: "run-1"})
	source.always = db.ErrUnavailable
	var view agent.RunView
	if err := c.FromPayload(p, &view); err != nil || view.RunID != "run-1" {
		t.Errorf("%+v, %v", view, err)
	}

	// What was sealed under newer ones is not lost for it.
	source.fail(nil)
	source.rotate(t, deployment)
	newer := payload(t, codec.DataConverter(source.store.program()), agent.RunView{RunID: "run-2"})
	source.fail(db.ErrNoVault)
	var later *converter.WorkflowTaskFailureError
	if err := c.FromPayload(newer, &view); !errors.As(err, &later) {
		t.Errorf("rotated while the database is away: %v", err)
	}
	source.fail(nil)
	if err := c.FromPayload(newer, &view); err != nil || view.RunID != "run-2" {
		t.Errorf("%+v, %v", view, err)
	}
}

func BenchmarkPayload(b *testing.B) {
	for name, c := range map[string]converter.DataConverter{"plain": converter.GetDefaultDataConverter(), "sealed": codec.DataConverter(newStore(b).program())} {
		b.Run(name, func(b *testing.B) {
			in := agent.NextActionInput{Run: ref, DefinitionDigest: strings.Repeat("ab", 32), Model: "gpt-4o-mini"}
			for b.Loop() {
				var out agent.NextActionInput
				if err := c.FromPayload(payload(b, c, in), &out); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
