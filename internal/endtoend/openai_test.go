package endtoend

import (
	"net/http"
	"testing"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/internal/rig"
	"github.com/fairlead/fairlead/model/openai"
	"github.com/fairlead/fairlead/model/openaitest"
)

// withOpenAI is withWorker with a model server that speaks OpenAI's wire format.
func (w *world) withOpenAI(t *testing.T, replies ...openaitest.Reply) (*world, *openaitest.Server) {
	t.Helper()
	server := openaitest.New(t, replies...)
	return w.withWorker(func(c *rig.Config) {
		m, err := openai.New(openai.Options{APIKey: "key", BaseURL: server.URL(), HTTPClient: server.Client()})
		if err != nil {
			t.Fatal(err)
		}
		c.Model = m
	}), server
}

func call(arguments string) openaitest.Reply {
	return openaitest.Reply{
		Calls: []openaitest.Call{{ID: "call_a", Name: "look", Arguments: arguments}},
		Usage: &openaitest.Usage{Prompt: 100, Completion: 10},
	}
}

// TestOpenAIRun is a whole run over the real wire format, with what goes wrong
// on real networks: what is retried, what ends the run, and what is billed.
func TestOpenAIRun(t *testing.T) {
	t.Parallel()
	answer := openaitest.Reply{Text: "It leaks.", Usage: &openaitest.Usage{Prompt: 200, Completion: 20}}
	limited := openaitest.Reply{Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"1"}}}
	down := openaitest.Reply{Status: http.StatusInternalServerError}
	unreported := answer
	unreported.Usage = nil
	for name, test := range map[string]struct {
		replies  []openaitest.Reply
		reason   agent.Reason
		detail   string
		attempts int
		// tokens are billed and known, -1 when an attempt is unknown. A request
		// that was turned away cost nothing; one that broke may have.
		tokens int64
	}{
		"answer":                  {[]openaitest.Reply{call(`{"n":1}`), answer}, agent.ReasonFinal, "", 2, 330},
		"limited, then answer":    {[]openaitest.Reply{limited, answer}, agent.ReasonFinal, "", 2, 220},
		"down, then answer":       {[]openaitest.Reply{down, answer}, agent.ReasonFinal, "", 2, -1},
		"down for good":           {[]openaitest.Reply{down, down, down}, agent.ReasonModelUnavailable, "unavailable", 3, -1},
		"no rights":               {[]openaitest.Reply{{Status: http.StatusUnauthorized}}, agent.ReasonModelUnavailable, "authentication", 1, 0},
		"cut before any output":   {[]openaitest.Reply{{CutAtOnce: true}, answer}, agent.ReasonFinal, "", 2, -1},
		"cut after some output":   {[]openaitest.Reply{{Text: "It leaks because of the pool", Cut: 2}}, agent.ReasonOutputTruncated, "stream_cut", 1, -1},
		"content filter":          {[]openaitest.Reply{{Text: "", Finish: "content_filter"}}, agent.ReasonContentPolicy, "", 1, -1},
		"length":                  {[]openaitest.Reply{{Text: "It lea", Finish: "length"}}, agent.ReasonOutputTruncated, "", 1, -1},
		"half-finished arguments": {[]openaitest.Reply{call(`{"n":1`), answer}, agent.ReasonFinal, "", 2, 330},
		"usage missing":           {[]openaitest.Reply{unreported}, agent.ReasonFinal, "", 1, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, server := newWorld(t).withOpenAI(t, test.replies...)
			req := request("Why does it fail?")
			result := w.run(req)
			if result.Reason != test.reason || result.Detail != test.detail {
				t.Fatalf("ended %s (%q), want %s (%q)", result.Reason, result.Detail, test.reason, test.detail)
			}
			if got := len(server.Requests()); got != test.attempts || result.Usage.Attempts != test.attempts {
				t.Errorf("%d requests and %d attempts, want %d: nobody else may retry", got, result.Usage.Attempts, test.attempts)
			}
			if test.tokens >= 0 && result.Usage.BilledTokens != test.tokens {
				t.Errorf("billed %d tokens, want %d", result.Usage.BilledTokens, test.tokens)
			}
			if known := result.Usage.UnknownAttempts == 0; known != (test.tokens >= 0) {
				t.Errorf("usage %+v: known is %t", result.Usage, known)
			}
			if result.Usage.UnknownAttempts > 0 && result.Usage.BilledTokens <= result.Usage.InputTokens+result.Usage.OutputTokens {
				t.Errorf("usage %+v: an unknown attempt is billed as if it were free", result.Usage)
			}
			w.checkLedger(t, req, result)
		})
	}
}
