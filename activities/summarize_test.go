package activities_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
)

// chat is a conversation of many short turns, whose summaries are written by
// write; the agent itself answers at once.
type chat struct {
	*bundle
	first agent.RunRequest
	last  model.Request
	turns int
	// asked counts the requests for a summary.
	asked atomic.Int64
}

func newChat(t *testing.T, write func(source []asked, req model.Request) string, edit func(*definition.Definition)) *chat {
	c := &chat{first: request()}
	c.bundle = setup(t, options{
		script: func(_ context.Context, req model.Request) (scripted.Turn, error) {
			if strings.Contains(string(req.FinalSchema), "open_tasks") {
				c.asked.Add(1)
				var data struct {
					Messages []asked `json:"messages"`
				}
				if err := json.Unmarshal([]byte(req.Messages[0].Text), &data); err != nil {
					t.Error(err)
				}
				return scripted.Turn{Text: write(data.Messages, req)}, nil
			}
			c.last = req
			return scripted.Turn{Text: "Noted."}, nil
		},
		edit: func(d *definition.Definition) {
			d.Summary = definition.Summary{After: 6, Keep: 4}
			if edit != nil {
				edit(d)
			}
		},
	})
	return c
}

type asked struct {
	Seq        int64
	Role, Text string
}

// say is one turn; it returns what EndRun says.
func (c *chat) say(message string) agent.EndRunOutput {
	c.Helper()
	req := request()
	req.Conversation, req.Message = c.first.Conversation, message
	g := begun{req, c.begin(req)}
	action := c.act(g.next(0, 0))
	out, err := c.runs.EndRun(c.ctx, agent.EndRunInput{Run: g.ref(), Reason: agent.ReasonFinal, Step: 1, AnswerMessageID: action.AnswerMessageID})
	if err != nil {
		c.Fatal(err)
	}
	c.turns++
	return out
}

func (c *chat) summarize() agent.SummarizeOutput {
	c.Helper()
	out, err := c.runs.Summarize(c.ctx, agent.SummarizeInput{
		Scope: c.first.Scope(), Conversation: c.first.Conversation, DefinitionDigest: definition.Digest(c.defs[0]),
	})
	if err != nil {
		c.Fatal(err)
	}
	return out
}

// summaries are those on record, whatever their status.
func (c *chat) summaries() string {
	c.Helper()
	rows, err := c.owner.Query(c.ctx, "SELECT from_seq, to_seq, status, failure FROM conversation_summary ORDER BY created_at, from_seq")
	if err != nil {
		c.Fatal(err)
	}
	defer rows.Close()
	var lines []string
	for rows.Next() {
		var from, to int64
		var status, failure string
		if err := rows.Scan(&from, &to, &status, &failure); err != nil {
			c.Fatal(err)
		}
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%d-%d %s %s", from, to, status, failure)))
	}
	return strings.Join(lines, ", ")
}

// honest is a summary that quotes what must not get lost.
func honest(source []asked, _ model.Request) string {
	longest := slices.MaxFunc(source, func(a, b asked) int { return len(a.Text) - len(b.Text) })
	text := []string{longest.Text}
	prohibitions := []map[string]any{}
	for _, m := range source {
		if strings.HasPrefix(m.Text, "Never ") {
			prohibitions = append(prohibitions, map[string]any{"text": m.Text, "source_seq": m.Seq})
		} else if m.Seq != longest.Seq && strings.Contains(m.Text, "ORD-") {
			text = append(text, m.Text)
		}
	}
	made, _ := json.Marshal(map[string]any{
		"summary": strings.Join(text, " "), "decisions": []string{}, "open_tasks": []string{}, "prohibitions": prohibitions, "identifiers": []string{},
	})
	return string(made)
}

const (
	order = "The order ORD-2291 did not arrive, said the customer on the telephone in a long and sad call about it."
	ban   = "Never refund it without the bank."
)

func (c *chat) talk(turns int) (due agent.EndRunOutput) {
	for range turns {
		switch c.turns {
		case 0:
			due = c.say(order)
		case 1:
			due = c.say(ban)
		default:
			due = c.say("Something else happened in the shop that day, and it was of no weight for anybody.")
		}
	}
	return due
}

// TestSummarize: the older part gives way to a checked summary; what it says
// and the newest messages are in the request, the originals are where they were.
func TestSummarize(t *testing.T) {
	t.Parallel()
	c := newChat(t, honest, nil)
	if due := c.talk(4); due.Summarize {
		t.Errorf("a summary is due after 8 messages: %+v", due)
	}
	if out := c.summarize(); out != (agent.SummarizeOutput{}) || c.asked.Load() != 0 {
		t.Errorf("nothing was due: %+v", out)
	}
	if due := c.talk(1); !due.Summarize {
		t.Errorf("no summary is due after 10 messages: %+v", due)
	}
	before := c.rows("message")
	if out := c.summarize(); out != (agent.SummarizeOutput{FromSeq: 1, ToSeq: 6}) {
		t.Fatalf("got %+v", out)
	}
	if c.rows("message") != before {
		t.Error("messages are gone")
	}
	if out := c.summarize(); out != (agent.SummarizeOutput{}) {
		t.Errorf("the next one is due too early: %+v", out)
	}
	if due := c.talk(3); !due.Summarize {
		t.Error("the next one is not due after 16 messages")
	}
	if out := c.summarize(); out.FromSeq != 7 || out.ToSeq != 12 || out.Failure != "" {
		t.Errorf("the next one: %+v", out)
	}
	if got := c.summaries(); got != "1-6 checked, 7-12 checked" {
		t.Errorf("on record: %s", got)
	}
	var used int64
	if err := c.owner.QueryRow(c.ctx, "SELECT sum(billed_tokens) FROM conversation_summary").Scan(&used); err != nil || used <= 0 {
		t.Errorf("summaries cost %d, %v", used, err)
	}
	// Nothing of a reservation is left: the day has what runs and summaries cost.
	var day, runs int64
	if err := c.owner.QueryRow(c.ctx, "SELECT (SELECT tokens FROM daily_usage WHERE user_id = ''), (SELECT sum(tokens) FROM ledger_entry WHERE kind = 'settle')").Scan(&day, &runs); err != nil || day != runs+used {
		t.Errorf("the day counts %d tokens, the runs %d and the summaries %d; %v", day, runs, used, err)
	}
}

// TestSummaryInRequest: with a small budget for messages the oldest are not
// there any more, and their summary is.
func TestSummaryInRequest(t *testing.T) {
	t.Parallel()
	c := newChat(t, honest, func(d *definition.Definition) { d.Context.Messages = 150 })
	c.talk(5)
	c.summarize()
	c.talk(2)
	var all []string
	for _, m := range c.last.Messages {
		all = append(all, m.Text)
	}
	first := all[0]
	if !strings.Contains(first, "fairlead_context") || !strings.Contains(first, "ORD-2291 did not arrive") || !strings.Contains(first, ban) {
		t.Errorf("the request begins with %s", first)
	}
	for _, text := range all[1:] {
		if text == order {
			t.Error("the original is there as well")
		}
	}
}

// TestBadSummaries: what the checks refuse is on record with its code, the model
// is told once, and the next request is what it was.
func TestBadSummaries(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		write func(source []asked, req model.Request) string
		code  string
	}{
		"nothing": {func([]asked, model.Request) string { return " " }, "empty"},
		"prose":   {func([]asked, model.Request) string { return "They talked." }, "malformed"},
		"a not that is lost": {func(s []asked, r model.Request) string {
			return strings.Replace(honest(s, r), "did not arrive", "did arrive", 1)
		}, "negation_changed"},
		"an order number": {func(s []asked, r model.Request) string {
			return strings.Replace(honest(s, r), "ORD-2291", "the order", 1)
		}, "identifier_lost"},
		"a prohibition": {func(s []asked, r model.Request) string {
			return strings.Replace(honest(s, r), "Never refund", "Refund", 1)
		}, "bad_source"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newChat(t, test.write, nil)
			c.talk(5)
			if out := c.summarize(); out.Failure != test.code || out.More {
				t.Errorf("got %+v, want %s", out, test.code)
			}
			if c.asked.Load() != 2 {
				t.Errorf("the model was asked %d times", c.asked.Load())
			}
			if got, want := c.summaries(), "1-6 failed "+test.code; got != want {
				t.Errorf("on record is %s, want %s", got, want)
			}
			if due := c.talk(1); !due.Summarize {
				t.Error("it is not tried again")
			}
			if got := c.last.Messages[0].Text; got != order {
				t.Errorf("the old working set begins with %s", got)
			}
			for range 3 {
				c.summarize()
			}
			if due := c.talk(1); due.Summarize {
				t.Error("it is tried for ever")
			}
			if due := c.talk(3); !due.Summarize {
				t.Error("it is given up for good")
			}
			if n := strings.Count(c.log.String(), "ORD-2291"); n != 0 {
				t.Errorf("the log has content, %d times", n)
			}
		})
	}
}

// TestMendedSummary: the second try may mend the first.
func TestMendedSummary(t *testing.T) {
	t.Parallel()
	tries := 0
	c := newChat(t, func(source []asked, req model.Request) string {
		if tries++; tries == 1 {
			return strings.Replace(honest(source, req), "ORD-2291", "the order", 1)
		}
		if feedback := req.Messages[len(req.Messages)-1].Text; !strings.Contains(feedback, "ORD-2291") {
			t.Errorf("the model was told %s", feedback)
		}
		return honest(source, req)
	}, nil)
	c.talk(5)
	if out := c.summarize(); out.Failure != "" || out.ToSeq != 6 {
		t.Errorf("got %+v", out)
	}
}

// TestDenseMessage: a message that nobody can summarize does not hold up what
// comes after it.
func TestDenseMessage(t *testing.T) {
	t.Parallel()
	c := newChat(t, honest, nil)
	var numbers strings.Builder
	for i := range 300 {
		fmt.Fprintf(&numbers, "%d-%d ", 1_000+i, 7*i)
	}
	c.say(numbers.String())
	c.turns = 2
	c.talk(4)
	if out := c.summarize(); out.FromSeq != 1 || out.ToSeq != 1 || out.Failure != "" || c.asked.Load() != 0 {
		t.Errorf("got %+v, asked %d times", out, c.asked.Load())
	}
	c.talk(1)
	if out := c.summarize(); out.FromSeq != 2 || out.Failure != "" {
		t.Errorf("the next: %+v", out)
	}
	if got := c.summaries(); got != "1-1 skipped, 2-7 checked" {
		t.Errorf("on record: %s", got)
	}
}

func TestSummaryLimits(t *testing.T) {
	t.Parallel()
	c := newChat(t, honest, nil)
	c.talk(5)
	c.exec("INSERT INTO tenant_limit (tenant, daily_tokens) VALUES ('acme', 1)")
	if out := c.summarize(); out.Failure != db.LimitTenantTokens || out.ToSeq != 0 || c.asked.Load() != 0 {
		t.Errorf("beyond the day's limit: %+v, asked %d times", out, c.asked.Load())
	}
	c.exec("DELETE FROM tenant_limit")

	ctx, cancel := context.WithTimeout(c.ctx, 10*time.Second)
	defer cancel()
	outs := make(chan agent.SummarizeOutput, 4)
	for range cap(outs) {
		go func() {
			out, err := c.runs.Summarize(ctx, agent.SummarizeInput{Scope: c.first.Scope(), Conversation: c.first.Conversation, DefinitionDigest: definition.Digest(c.defs[0])})
			if err != nil {
				t.Error(err)
			}
			outs <- out
		}()
	}
	for range cap(outs) {
		<-outs
	}
	if got := c.summaries(); got != "1-6 checked" {
		t.Errorf("four at once made %s", got)
	}
}

// TestSummaryOutage: a model that is away is no failure of the summary, and
// nothing of the reservation stays.
func TestSummaryOutage(t *testing.T) {
	t.Parallel()
	away := true
	c := newChat(t, honest, nil)
	script := scripted.New(func(_ context.Context, req model.Request) (scripted.Turn, error) {
		if strings.Contains(string(req.FinalSchema), "open_tasks") && away {
			return scripted.Turn{Err: &model.Error{Kind: model.KindUnavailable, StatusCode: 503}}, nil
		}
		return scripted.Turn{Text: "Noted."}, nil
	})
	c.runs = c.worker(options{model: script, edit: func(d *definition.Definition) { d.Summary = definition.Summary{After: 6, Keep: 4} }})
	c.talk(5)
	day := func() (tokens int64) {
		if err := c.owner.QueryRow(c.ctx, "SELECT tokens FROM daily_usage WHERE user_id = ''").Scan(&tokens); err != nil {
			t.Fatal(err)
		}
		return tokens
	}
	before := day()
	_, err := c.runs.Summarize(c.ctx, agent.SummarizeInput{Scope: c.first.Scope(), Conversation: c.first.Conversation, DefinitionDigest: definition.Digest(c.defs[0])})
	if err == nil || c.summaries() != "" {
		t.Errorf("an outage is on record as %q, %v", c.summaries(), err)
	}
	// An attempt without a known usage is billed at what it reserved: half.
	if billed := day() - before; billed <= 0 || billed > 2*maxSummaryTokens {
		t.Errorf("the day counts %d tokens more", billed)
	}
	if due := c.talk(1); !due.Summarize {
		t.Error("it is not tried again")
	}
}

// maxSummaryTokens is more than one try can reserve in these tests.
const maxSummaryTokens = 8_000
