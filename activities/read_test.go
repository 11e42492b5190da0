package activities_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
	"github.com/fairlead/fairlead/tool"
)

// proposing is a model that proposes the calls at every step.
func proposing(calls ...scripted.Call) scripted.Script {
	return scripted.RepeatLast(scripted.Turn{Calls: calls})
}

func (b *bundle) envelope(g begun, callID string) (text string) {
	b.Helper()
	err := b.db.InTx(b.ctx, g.req.Scope(), func(tx *db.Tx) error {
		state, err := tx.LoadStep(b.ctx, db.StepQuery{RunID: g.req.RunID, Step: 1000, MaxExchanges: 1000})
		for _, e := range state.Exchanges {
			for _, r := range e.Results {
				if r.CallID == callID {
					text = r.Envelope
				}
			}
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return text
}

func TestReadToolIsIdempotent(t *testing.T) {
	t.Parallel()
	b := setup(t, options{script: proposing(scripted.Call{Name: "look", Arguments: `{"at":"here"}`})})
	g := b.start()
	in := g.read(0, b.act(g.next(0, 0)).Calls[0])
	other := b.worker(options{})
	var outs [17]agent.ToolOutcome
	together(16, func(i int) {
		out, err := b.runs.ReadTool(b.ctx, in)
		if err != nil {
			t.Error(err)
		}
		outs[i] = out
	})
	var err error
	if outs[16], err = other.ReadTool(b.ctx, in); err != nil {
		t.Fatal(err)
	}
	want := agent.ToolOutcome{CallID: "0.0", ResultHash: db.ContentHash("here " + canary)}
	for _, out := range outs {
		if out != want {
			t.Errorf("got %+v, want %+v", out, want)
		}
	}
	if b.calls.of("look") != 1 || b.rows("tool_result") != 1 {
		t.Errorf("executed %d times, %d results", b.calls.of("look"), b.rows("tool_result"))
	}
	call := b.show(g).Calls()[0]
	if call.Status != db.CallSucceeded || call.Executions != 1 || call.ResultBytes != int64(len("here "+canary)) || call.ResultHash != want.ResultHash {
		t.Errorf("stored as %+v", call)
	}
}

func TestRefusedCalls(t *testing.T) {
	t.Parallel()
	b := setup(t, options{
		script: proposing(
			scripted.Call{Name: "look", Arguments: `{"at":"here","at":"there"}`},
			scripted.Call{Name: "look", Arguments: `{"at":1}`},
			scripted.Call{Name: "look", Arguments: `{"at":"a","more":1}`},
			scripted.Call{Name: "look", Arguments: `{"at":`},
			scripted.Call{Name: canary, Arguments: `{}`},
			scripted.Call{Name: "lооk", Arguments: `{"at":"here"}`}, // Cyrillic
			scripted.Call{Name: "look", Arguments: `{ "at" : "here" }`},
		),
	})
	g := b.start()
	calls := b.act(g.next(0, 0)).Calls
	for i, code := range []agent.ToolErrorCode{
		agent.ToolInvalidArguments, agent.ToolInvalidArguments, agent.ToolInvalidArguments, agent.ToolInvalidArguments,
		agent.ToolUnknown, agent.ToolUnknown,
	} {
		c := calls[i]
		if c.Refused == nil || c.Refused.Code != code || len(c.Refused.Hash) != 64 || len(c.ArgumentsHash) != 64 {
			t.Errorf("call %d: %+v, want %s", i, c, code)
			continue
		}
		if out := b.observe(g.read(0, c)); out.Error == nil || *out.Error != *c.Refused {
			t.Errorf("call %d read: %+v", i, out)
		}
		var shown struct {
			Error struct{ Code, Message string }
		}
		if err := json.Unmarshal([]byte(b.envelope(g, c.ID)), &shown); err != nil || shown.Error.Code != string(code) || shown.Error.Message == "" {
			t.Errorf("call %d is shown as %q", i, b.envelope(g, c.ID))
		}
	}
	if calls[6].Refused != nil || calls[6].ArgumentsHash != tool.Hash([]byte(`{"at":"here"}`)) {
		t.Errorf("the good call: %+v", calls[6])
	}
	if !strings.HasPrefix(calls[4].Tool, "unknown_") || strings.Contains(calls[4].Tool, canary) || calls[4].Tool == calls[5].Tool {
		t.Errorf("unknown tools are called %q and %q", calls[4].Tool, calls[5].Tool)
	}
	if b.calls.of("look") != 0 {
		t.Error("a refused call was executed")
	}
}

func TestToolErrors(t *testing.T) {
	t.Parallel()
	b := setup(t, options{script: proposing(
		scripted.Call{Name: "look", Arguments: `{"at":"nowhere"}`},
		scripted.Call{Name: "look", Arguments: `{"at":"crash"}`},
		scripted.Call{Name: "look", Arguments: `{"at":"unknown"}`},
		scripted.Call{Name: "broken", Arguments: `{}`},
	)})
	g := b.start()
	calls := b.act(g.next(0, 0)).Calls
	for i, code := range []agent.ToolErrorCode{agent.ToolNotFound, agent.ToolFailed} {
		out := b.observe(g.read(0, calls[i]))
		if out.Error == nil || out.Error.Code != code || out.End != "" {
			t.Errorf("call %d: %+v", i, out)
		}
		if again := b.observe(g.read(0, calls[i])); again.Error == nil || *again.Error != *out.Error {
			t.Errorf("call %d again: %+v", i, again)
		}
	}
	if want := `{"error":{"code":"not_found","message":"nothing there ` + canary + `","retryable":false}}`; b.envelope(g, "0.0") != want {
		t.Errorf("shown as %s", b.envelope(g, "0.0"))
	}
	if strings.Contains(b.envelope(g, "0.1"), canary) {
		t.Error("a panic's text reaches the model")
	}
	if out := b.observe(g.read(0, calls[2])); out.End != agent.ReasonOutcomeUnknown {
		t.Errorf("outcome unknown: %+v", out)
	}
	if out := b.observe(g.read(0, calls[3])); out.End != agent.ReasonAuthorizationUnavailable {
		t.Errorf("authorization unavailable: %+v", out)
	}
	result := b.finish(g, agent.ReasonOutcomeUnknown, 1, "")
	if result.ToolCalls != 2 || result.Actions[0] != (agent.CompletedAction{CallID: "0.0", Tool: "look", Error: agent.ToolNotFound}) {
		t.Errorf("result %+v", result)
	}
	for i, want := range []db.CallStatus{db.CallFailed, db.CallFailed, db.CallAbandoned, db.CallAbandoned} {
		if got := b.show(g).Calls()[i].Status; got != want {
			t.Errorf("call %d is %s, want %s", i, got, want)
		}
	}
}

func TestReadToolGuards(t *testing.T) {
	t.Parallel()
	b := setup(t, options{script: proposing(scripted.Call{Name: "look", Arguments: `{"at":"here"}`})})
	g := b.start()
	call := b.act(g.next(0, 0)).Calls[0]
	for name, edit := range map[string]func(*agent.ReadToolInput){
		"other hash":    func(in *agent.ReadToolInput) { in.ArgumentsHash = tool.Hash([]byte("{}")) },
		"unknown call":  func(in *agent.ReadToolInput) { in.CallID = "7.7" },
		"unknown run":   func(in *agent.ReadToolInput) { in.Run.RunID = "nobody" },
		"other user":    func(in *agent.ReadToolInput) { in.Run.Scope.User = "bob" },
		"other tenant":  func(in *agent.ReadToolInput) { in.Run.Scope.Tenant = "umbrella" },
		"other setting": func(in *agent.ReadToolInput) { in.Run.Scope.Environment = "test" },
	} {
		in := g.read(0, call)
		edit(&in)
		if out := b.observe(in); out.End != agent.ReasonInternal {
			t.Errorf("%s: %+v", name, out)
		}
	}
	in := g.read(0, call)
	in.Run.Scope.User = ""
	if _, err := b.runs.ReadTool(b.ctx, in); err == nil {
		t.Error("an incomplete scope was accepted")
	}
	b.finish(g, agent.ReasonCanceled, 1, "")
	if out := b.observe(g.read(0, call)); out.End != agent.ReasonCanceled {
		t.Errorf("after the end: %+v", out)
	}
	if b.calls.of("look") != 0 {
		t.Error("the tool was executed")
	}
}

func TestReadToolEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := setup(t, options{script: proposing(scripted.Call{Name: "slow", Arguments: `{"n":1}`}, scripted.Call{Name: "slow", Arguments: `{"n":2}`})})
	g := b.start()
	calls := b.act(g.next(0, 0)).Calls
	if calls[0].Local {
		t.Errorf("a slow read is proposed as %+v", calls[0])
	}
	in := g.read(0, calls[0])
	in.Deadline = time.Now().Add(50 * time.Millisecond)
	if out := b.observe(in); out.Error == nil || out.Error.Code != agent.ToolTimeout {
		t.Errorf("at the deadline: %+v", out)
	}
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan error)
	// On a busy machine the deadline may have passed before the first one began.
	before := b.calls.of("slow")
	go func() {
		_, err := b.runs.ReadTool(ctx, g.read(0, calls[1]))
		done <- err
	}()
	for b.calls.of("slow") == before {
		time.Sleep(time.Millisecond)
	}
	if got := b.show(g).Calls()[1]; got.Status != db.CallRunning || got.Executions != 1 {
		t.Errorf("while it runs: %+v", got)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// TestTruncatedResult shows a part, stores the whole, and lets the model fetch
// the rest by the result's ID.
func TestTruncatedResult(t *testing.T) {
	t.Parallel()
	script := scripted.ByStep(
		scripted.Turn{Calls: []scripted.Call{{Name: "look", Arguments: `{"at":"here","size":10000}`}}},
		scripted.Turn{Calls: []scripted.Call{
			{Name: "fetch_result", Arguments: `{"result_id":"0.0","offset":9000}`},
			{Name: "fetch_result", Arguments: `{"result_id":"5.5"}`},
		}},
	)
	b := setup(t, options{script: script})
	g := b.start()
	b.observe(g.read(0, b.act(g.next(0, 0)).Calls[0]))
	var shown struct {
		Truncated bool   `json:"truncated"`
		SizeBytes int    `json:"size_bytes"`
		ResultID  string `json:"result_id"`
		Note      string `json:"note"`
		Content   string `json:"content"`
	}
	full := "here " + canary + strings.Repeat(" x", 5000)
	if err := json.Unmarshal([]byte(b.envelope(g, "0.0")), &shown); err != nil {
		t.Fatal(err)
	}
	if !shown.Truncated || shown.SizeBytes != len(full) || shown.ResultID != "0.0" || !strings.Contains(shown.Note, "fetch_result") || len(shown.Content) > 4<<10 {
		t.Errorf("shown as %+v", shown)
	}
	calls := b.act(g.next(1, 0)).Calls
	if out := b.observe(g.read(1, calls[0])); out.Error != nil {
		t.Fatalf("fetch: %+v", out)
	}
	if rest := b.envelope(g, "1.0"); !strings.Contains(rest, full[9000:9100]) || !strings.Contains(rest, `"total_bytes":`) {
		t.Errorf("fetched %.200s", rest)
	}
	if out := b.observe(g.read(1, calls[1])); out.Error == nil || out.Error.Code != agent.ToolNotFound {
		t.Errorf("fetch of nothing: %+v", out)
	}

	// Another run, of whomever, does not find it.
	for name, edit := range map[string]func(*agent.RunRequest){
		"same user":    func(*agent.RunRequest) {},
		"other user":   func(r *agent.RunRequest) { r.User = "bob" },
		"other tenant": func(r *agent.RunRequest) { r.Tenant = "umbrella" },
	} {
		req := request()
		edit(&req)
		other := begun{req, b.begin(req)}
		// Its own first call gives a result of the same ID; without it there is none.
		call := b.act(other.next(0, 0)).Calls[0]
		_, _, err := activitiesResults(b).ReadResult(b.ctx, req.Scope(), req.RunID, call.ID, 0, 10)
		if !errors.Is(err, tool.ErrResultNotFound) {
			t.Errorf("%s: own result before it exists: %v", name, err)
		}
		scope := req.Scope()
		if name == "same user" {
			continue
		}
		if _, _, err := activitiesResults(b).ReadResult(b.ctx, scope, g.req.RunID, "0.0", 0, 10); !errors.Is(err, tool.ErrResultNotFound) {
			t.Errorf("%s: another's result: %v", name, err)
		}
	}
	chunk, total, err := activitiesResults(b).ReadResult(b.ctx, g.req.Scope(), g.req.RunID, "0.0", 5, 6)
	if err != nil || string(chunk) != canary[:6] || total != int64(len(full)) {
		t.Errorf("piece %q of %d, %v", chunk, total, err)
	}
	if chunk, total, err := activitiesResults(b).ReadResult(b.ctx, g.req.Scope(), g.req.RunID, "0.0", 1<<40, 1<<40); err != nil || len(chunk) != 0 || total != int64(len(full)) {
		t.Errorf("beyond the end: %q of %d, %v", chunk, total, err)
	}
}

// TestNoteNeedsTheTool leaves the hint out where the model could not follow it.
func TestNoteNeedsTheTool(t *testing.T) {
	t.Parallel()
	b := setup(t, options{
		script: proposing(scripted.Call{Name: "look", Arguments: `{"at":"here","size":10000}`}),
		edit:   func(d *definition.Definition) { d.Tools = []string{"look"} },
	})
	g := b.start()
	b.observe(g.read(0, b.act(g.next(0, 0)).Calls[0]))
	if text := b.envelope(g, "0.0"); strings.Contains(text, "fetch_result") || !strings.Contains(text, `"truncated":true`) {
		t.Errorf("shown as %.300s", text)
	}
}

// TestSecrecy drives content through every path and looks for it where it must
// not be (OBS-2).
func TestSecrecy(t *testing.T) {
	t.Parallel()
	b := setup(t, options{script: scripted.ByStep(
		scripted.Turn{Text: canary, Calls: []scripted.Call{
			{Name: "look", Arguments: `{"at":"` + canary + `"}`},
			{Name: "look", Arguments: `{"at":"nowhere"}`},
			{Name: "look", Arguments: `{"at":"crash"}`},
			{Name: "broken", Arguments: `{}`},
			{Name: canary, Arguments: canary},
		}},
		scripted.Turn{Text: canary, Err: &model.Error{Kind: model.KindUnavailable, Err: errors.New(canary), RequestID: "r1"}},
		scripted.Turn{Text: canary},
	)})
	var said []any
	say := func(v any, err error) {
		said = append(said, v)
		if err != nil {
			said = append(said, err.Error())
		}
	}
	g := b.start()
	say(g.out, nil)
	first, err := b.runs.NextAction(b.ctx, g.next(0, 0))
	say(first, err)
	for _, call := range first.Calls {
		say(b.runs.ReadTool(b.ctx, g.read(0, call)))
	}
	say(b.runs.NextAction(b.ctx, g.next(1, 0)))
	bad := request()
	bad.RunID = g.req.RunID
	say(b.tryBegin(bad))
	bad = request()
	bad.Message = canary + "\x00"
	say(b.tryBegin(bad))
	b.exec("ALTER TABLE model_attempt RENAME COLUMN response TO gone")
	say(b.runs.NextAction(b.ctx, g.next(2, 0)))
	b.exec("ALTER TABLE model_attempt RENAME COLUMN gone TO response")
	say(b.finish(g, agent.ReasonInternal, 2, ""), nil)

	text, err := json.Marshal(said)
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range map[string]string{"results and errors": string(text), "log": b.log.String()} {
		if strings.Contains(text, canary) {
			t.Errorf("content appears in %s: %s", where, text)
		}
		if strings.Contains(text, "SELECT") || strings.Contains(text, "127.0.0.1") {
			t.Errorf("SQL or an address appears in %s: %s", where, text)
		}
	}
	if !strings.Contains(b.log.String(), g.req.RunID) {
		t.Error("the log is empty: nothing was tested")
	}
}
