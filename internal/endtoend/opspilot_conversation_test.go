package endtoend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/examples/opspilot"
	"github.com/fairlead/fairlead/examples/opspilot/services"
	"github.com/fairlead/fairlead/internal/rig"
	"github.com/fairlead/fairlead/internal/summary"
	"github.com/fairlead/fairlead/internal/tokens"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
)

// clinic is a payment-api that has leaked all its connections and says so in
// numbers that never change, until it is restarted. It is its own supervisor.
type clinic struct {
	dir      string
	registry *services.Registry

	mu     sync.Mutex
	record services.Record
	done   map[string]services.Restart
}

const clinicLog = `{"time":"2026-01-31T08:01:00Z","level":"WARN","msg":"bank did not answer in time","pool":"kept"}
{"time":"2026-01-31T08:02:00Z","level":"ERROR","msg":"payment failed: no connection to the bank is free","order_id":"ord-10"}
{"time":"2026-01-31T08:03:00Z","level":"ERROR","msg":"payment failed: no connection to the bank is free","order_id":"ord-11"}
`

func newClinic(t testing.TB) *clinic { return newClinicIn(t, t.TempDir(), "production") }

// newClinicIn is one in another environment, with the registry of dir.
func newClinicIn(t testing.TB, dir, environment string) *clinic {
	t.Helper()
	c := &clinic{dir: dir, done: map[string]services.Restart{}}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	address := server.Listener.Addr().String()
	c.record = services.Record{
		ID: services.ID("payment-api", environment), Name: "payment-api", Environment: environment, Address: address, ControlAddress: address,
		PID: 1, StartedAt: time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC), LogPath: filepath.Join(c.dir, "payment-api."+environment+".log"),
	}
	var err error
	if c.registry, err = services.Open(filepath.Join(c.dir, "services")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.registry.Put(c.record), os.WriteFile(c.record.LogPath, []byte(clinicLog), 0o600)); err != nil {
		t.Fatal(err)
	}
	return c
}

// restarts counts the restarts that happened.
func (c *clinic) restarts() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.done)
}

// ServeHTTP implements http.Handler.
func (c *clinic) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	healthy := len(c.done) > 0
	status, body := http.StatusOK, any(nil)
	switch key, lookUp := strings.CutPrefix(r.URL.Path, services.RestartsPath); {
	case r.URL.Path == services.StatusPath && healthy:
		body = c.status(services.Pool{Size: 3}, services.Requests{Total: 9, Succeeded: 9})
	case r.URL.Path == services.StatusPath:
		body = c.status(services.Pool{Size: 3, InUse: 3, LeakedConnections: 3, LeakedBytes: 196_608, LongestUseMillis: 60_000},
			services.Requests{Total: 11, Succeeded: 6, Failed: 5, PoolTimeouts: 2, BankTimeouts: 3})
	case r.URL.Path == services.HealthPath && healthy:
		body = services.Health{Status: services.HealthOK}
	case r.URL.Path == services.HealthPath:
		status, body = http.StatusServiceUnavailable, services.Health{Status: services.HealthDegraded, Reason: services.ReasonPoolExhausted}
	case r.URL.Path == services.RestartPath:
		status, body = c.restart(r.Header.Get(services.KeyHeader), r.Header.Get(services.VersionHeader))
	case lookUp && c.done[key].Key == key:
		body = c.done[key]
	default:
		status, body = http.StatusNotFound, services.Problem{Code: services.CodeUnknownKey}
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (c *clinic) status(pool services.Pool, requests services.Requests) services.Status {
	return services.Status{
		Name: c.record.Name, Environment: c.record.Environment, PID: c.record.PID, StartedAt: c.record.StartedAt, UptimeSeconds: 240,
		Goroutines: 12, HeapBytes: 1 << 20, Pool: pool, Requests: requests, Latency: services.Latency{Samples: 11, P50Millis: 20, P95Millis: 500, MaxMillis: 501},
	}
}

func (c *clinic) restart(key, tag string) (status int, body any) {
	if done, again := c.done[key]; again {
		return http.StatusOK, done
	}
	from := c.record.Version()
	if tag != services.EntityTag(from) {
		return http.StatusPreconditionFailed, services.Problem{Code: services.CodeVersionChanged}
	}
	c.record.StartedAt, c.record.PID = c.record.StartedAt.Add(time.Hour), c.record.PID+1
	if err := c.registry.Put(c.record); err != nil {
		return http.StatusInternalServerError, services.Problem{Code: services.CodeRestartFailed}
	}
	c.done[key] = services.Restart{Key: key, State: services.RestartDone, FromVersion: from, ToVersion: c.record.Version(), RestartedAt: c.record.StartedAt}
	return http.StatusOK, c.done[key]
}

// recorder keeps what the model is asked.
type recorder struct {
	model.Model
	mu       sync.Mutex
	requests []model.Request
}

func (r *recorder) Generate(ctx context.Context, req model.Request, stream func(model.Delta)) (model.Response, error) {
	r.mu.Lock()
	r.requests = append(r.requests, req)
	r.mu.Unlock()
	return r.Model.Generate(ctx, req, stream)
}

// at returns the request of a step of the first run with that question.
func (r *recorder) at(t testing.TB, asked string, step int) model.Request {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.requests, func(req model.Request) bool { return question(req) == asked && scripted.Step(req) == step })
	if i < 0 {
		t.Fatalf("the model was never asked %q in step %d", asked, step)
	}
	return r.requests[i]
}

// all returns the requests of runs with that question, oldest first.
func (r *recorder) all(asked string) (requests []model.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, req := range r.requests {
		if question(req) == asked {
			requests = append(requests, req)
		}
	}
	return requests
}

// noted is the beginning of a message that is answered at once.
const noted = "note "

// talkScript plays OpsPilot. Notes are cheap, and with an exclamation mark the
// model does not hear what the application says.
func talkScript(ctx context.Context, req model.Request) (scripted.Turn, error) {
	asked := question(req)
	switch {
	case strings.HasPrefix(asked, noted):
		return scripted.Turn{Text: "Noted."}, nil
	case strings.HasSuffix(asked, "!"):
		req.Messages = slices.DeleteFunc(slices.Clone(req.Messages), func(m model.Message) bool {
			return m.Role == model.RoleUser && strings.HasPrefix(m.Text, `{"fairlead_context":`)
		})
	}
	return opspilot.Script(0)(ctx, req)
}

// talk is one conversation with an OpsPilot.
type talk struct {
	*world
	clinic       *clinic
	model        *recorder
	conversation string
	agent        string
	turns        []agent.RunRequest
}

// newTalk runs OpsPilot on a model that the worker asks itself, with room for few
// messages in their own words.
func newTalk(t testing.TB) *talk {
	t.Helper()
	c := newClinic(t)
	own, err := opspilot.Tools(opspilot.Config{RegistryDir: filepath.Join(c.dir, "services"), Visible: map[string][]string{"production": {"staging"}}})
	if err != nil {
		t.Fatal(err)
	}
	def, err := opspilot.Definition(opspilot.WithModel("scripted-local"), func(d *definition.Definition) {
		d.Version, d.Context.Messages = d.Version+".short", 600
		d.Writes.ConfirmWithin = 30 * time.Second // a plan that should not be there does not wait for a day
	})
	if err != nil {
		t.Fatal(err)
	}
	asked := &recorder{Model: scripted.New(talkScript)}
	w := newWorld(t).withWorker(func(config *rig.Config) {
		config.Model, config.Definitions = asked, []definition.Definition{def}
		config.Tools = append(config.Tools, own...)
		config.Policies, config.ApprovalKeys = policies, []string{approvalKey.Public()}
	})
	return &talk{world: w, clinic: c, model: asked, conversation: "talk-" + w.queue, agent: def.Name}
}

func (k *talk) request(message string) agent.RunRequest {
	req := request(message)
	req.Agent, req.Environment, req.Conversation = k.agent, "production", k.conversation
	k.turns = append(k.turns, req)
	return req
}

// say runs a turn to its end.
func (k *talk) say(message string) agent.RunRequest {
	k.Helper()
	req := k.request(message)
	if result := k.run(req); result.Reason != agent.ReasonFinal {
		k.Fatalf("%q ended %+v", message, result)
	}
	return req
}

// calls are a run's calls in a few words.
func (k *talk) calls(req agent.RunRequest) string {
	k.Helper()
	var words []string
	for _, c := range k.show(req).Calls() {
		word := c.Tool
		if c.Error != nil {
			word += ": " + string(c.Error.Code)
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

// plans counts the plans of the whole conversation.
func (k *talk) plans() int64 {
	k.Helper()
	return k.number("SELECT count(*) FROM write_plan p JOIN run r ON (r.tenant, r.id) = (p.tenant, p.run_id) WHERE r.conversation_id = $1", k.conversation)
}

// session is what holds in the conversation.
func (k *talk) session() db.SessionState {
	k.Helper()
	state, err := k.db.Session(k.ctx, k.turns[0].Scope(), k.conversation)
	if err != nil {
		k.Fatal(err)
	}
	return state
}

// golden compares a request with a file, run IDs and IDs of prohibitions aside.
func (k *talk) golden(name string, req model.Request) {
	k.Helper()
	var names []string
	for i, turn := range k.turns {
		names = append(names, turn.RunID, fmt.Sprintf("<run %d>", i+1))
	}
	goldenRequest(k, name, req, names...)
}

const (
	bySelf     = "check payment-api in production, and never restart production by yourself"
	forbidding = "check payment-api in production, and never restart production"
	itsLog     = "its error log?"
	restartIt  = "restart it"
	// looks are the calls with which OpsPilot looks at a leak.
	looks = "service_status, query_logs, query_logs"
)

// TestOpsPilotConversation is a talk of sixty-three turns. The second one is
// understood by what is settled, and in the last one, when the words of the
// first have long gone from the prompt, the prohibition of the first stands.
func TestOpsPilotConversation(t *testing.T) {
	t.Parallel()
	k := newTalk(t)
	first := k.say(bySelf)
	if got := k.calls(first); got != "find_service, "+looks {
		t.Fatalf("turn 1 called %s", got)
	}
	found, standing := k.session(), "never restart production by yourself"
	if len(found.Prohibitions) != 1 || !strings.Contains(found.Prohibitions[0].Value, standing) || !found.Prohibitions[0].Ask ||
		!slices.Equal(found.Prohibitions[0].Tools, []string{opspilot.RestartService}) {
		t.Fatalf("the prohibitions are %+v", found.Prohibitions)
	}

	second := k.say(itsLog)
	asked := k.model.at(t, itsLog, 0)
	k.golden("its-error-log", asked)
	for _, m := range asked.Messages {
		if naming := strings.Contains(m.Text, "payment"); naming != strings.HasPrefix(m.Text, `{"fairlead_context":`) {
			t.Errorf("session state alone should name the service: %s", m.Text)
		}
	}
	// The call that the next request repeats.
	next := k.model.at(t, itsLog, 1).Messages
	status := next[slices.IndexFunc(next, func(m model.Message) bool { return len(m.Calls) > 0 })].Calls[0]
	if k.calls(second) != looks || status.Name != opspilot.ServiceStatus || status.Arguments != `{"service_id":"payment-api.production"}` {
		t.Errorf("turn 2 called %s, and first %+v", k.calls(second), status)
	}

	for i := range 60 {
		k.say(fmt.Sprintf("%s%d: order ord-%d was refunded, not canceled", noted, i+1, 4000+i))
	}
	k.until("the older messages are summarized", func() bool {
		return k.number("SELECT coalesce(max(to_seq), 0) FROM conversation_summary WHERE conversation_id = $1 AND status = 'checked'", k.conversation) == 80
	})
	if n := k.number("SELECT count(*) FROM conversation_summary WHERE conversation_id = $1", k.conversation); n != 2 {
		t.Errorf("%d summaries were made of 124 messages, 40 at a time and without the newest 20", n)
	}

	req := k.request(restartIt)
	run := k.start(req)
	plan := k.pending(req, bob)
	asked = k.model.at(t, restartIt, 0)
	k.golden("restart-it", asked)
	summaries, state := asked.Messages[0].Text, asked.Messages[len(asked.Messages)-2].Text
	if !strings.HasPrefix(summaries, `{"fairlead_context":`) || !strings.Contains(summaries, "ord-4000") || strings.Contains(summaries, "ord-4059") {
		t.Errorf("the summaries are %s", summaries)
	}
	if !strings.HasPrefix(state, `{"fairlead_context":`) || !strings.Contains(state, standing) {
		t.Errorf("the session state is %s", state)
	}
	for _, m := range asked.Messages[1 : len(asked.Messages)-2] {
		if m.Text == bySelf || m.Text == itsLog || strings.Contains(m.Text, "ord-4000") {
			t.Errorf("an old message is still there: %s", m.Text)
		}
	}
	if status := k.status(req); status != agent.StatusWaitingConfirmation || plan.Resource != "service/payment-api.production" || k.clinic.restarts() != 0 {
		t.Errorf("the run is %s with a plan for %s and %d restarts", status, plan.Resource, k.clinic.restarts())
	}
	k.approve(req, bob)
	if result := k.wait(run); result.Reason != agent.ReasonFinal || k.clinic.restarts() != 1 {
		t.Errorf("ended %+v with %d restarts", result, k.clinic.restarts())
	}
	if answer := k.show(req).Answer; !strings.Contains(answer, "payment-api (production) was failing, was restarted") {
		t.Errorf("the answer is %s", answer)
	}
	facts := map[string]string{}
	for _, f := range k.session().Facts {
		facts[f.Key] = f.Value
	}
	if facts["last_restarted_service"] != "payment-api.production" || facts["last_restart"] != "2026-01-31T09:00:00Z" || len(facts) != 5 {
		t.Errorf("the facts are %v", facts)
	}
	if n := k.messages(first); n != 2*int64(len(k.turns)) {
		t.Errorf("%d messages after %d turns", n, len(k.turns))
	}
}

// TestOpsPilotConversationForbidden: what the user forbade is refused before
// there is a plan, whether or not the model listens, until the user allows it.
func TestOpsPilotConversationForbidden(t *testing.T) {
	t.Parallel()
	k := newTalk(t)
	k.say(forbidding)
	listened := k.say(restartIt)
	if got := k.calls(listened); got != looks {
		t.Errorf("a model that listens called %s", got)
	}
	answer := k.show(listened).Answer
	if !strings.Contains(answer, "I have not proposed a restart, because you said: ") || !strings.Contains(answer, "never restart production") {
		t.Errorf("it answers %s", answer)
	}

	deaf := k.say("restart payment-api!")
	if got := k.calls(deaf); got != "find_service, "+looks+", restart_service: prohibited" {
		t.Errorf("a model that does not listen called %s", got)
	}
	if answer := k.show(deaf).Answer; !strings.Contains(answer, "it was refused because you have forbidden it") {
		t.Errorf("it answers %s", answer)
	}
	if n := k.plans(); n != 0 || k.clinic.restarts() != 0 {
		t.Errorf("%d plans and %d restarts of what was forbidden", n, k.clinic.restarts())
	}

	req := k.request("you may restart production again")
	run := k.start(req)
	k.approve(req, bob)
	if result := k.wait(run); result.Reason != agent.ReasonFinal || k.plans() != 1 || k.clinic.restarts() != 1 {
		t.Errorf("ended %+v with %d plans and %d restarts", result, k.plans(), k.clinic.restarts())
	}
	if standing := k.session().Prohibitions; len(standing) != 0 {
		t.Errorf("what was lifted still stands: %+v", standing)
	}
}

// TestOpsPilotSummaries: what the demo's script makes of a conversation is
// accepted by the checks that every model's summary must pass.
func TestOpsPilotSummaries(t *testing.T) {
	t.Parallel()
	const english = "payment-api (production) is failing: it cannot take payments, because no connection to the bank is free.\n\n" +
		"Likely cause: a connection leak. 8 of 8 connections are held by requests that are already over.\n\n" +
		"Evidence:\n- Health: degraded (connection_pool_exhausted); running since 2026-01-31T08:00:00.000Z (240 s). [service_status 1.0]\n" +
		"- Log: 14 ERROR lines from 2026-01-31T08:02:00.000Z to 2026-01-31T08:03:00.000Z; they say 14× `payment failed: no connection` (in the first 14). [query_logs 1.1]\n\n" +
		"Next steps:\n1. Restart payment-api to free the connections. That changes a running system and needs a person's decision; I have not done it.\n" +
		"2. Mend the leak in payment-api: give the connection back, or discard it, also when the bank does not answer in time. Until then a restart only buys time.\n\n" +
		"If I am asked to fix it, I propose the restart, and a person confirms or declines it before anything happens.\n\nNot known: I have seen numbers and logs, not the source code."
	const chinese = "payment-api（production）正在失败：没有空闲的银行连接，无法处理支付。\n\n证据：\n- 健康状态：degraded；启动于 2026-01-31T08:00:00.000Z（已运行 240 秒）。[service_status 1.0]\n\n" +
		"建议的下一步：\n1. 重启 payment-api 以释放连接。这会改变运行中的系统，必须由人来决定；我没有执行。\n2. 修复 payment-api 的泄漏：银行超时时也要归还或丢弃连接。修复之前，重启只能争取时间。\n"
	for name, texts := range map[string][]string{
		"in English":        {bySelf, english, itsLog, english, "Order ORD-2024-17 of 19.90 EUR was not refunded, call +49 30 123456 at 14:30", "I cannot do that.", restartIt, english},
		"in Chinese":        {"查一下生产环境 payment-api，不要自己重启生产环境", chinese, "它的错误日志呢", chinese, "订单 ORD-17 的 1,299.00 元还没有退款，2026年1月31日之前不要发货", "好的，我没有发货。"},
		"many prohibitions": {"Never restart production. Do not page anybody at night. Don't touch ledger-api.", "I will not.", "Never delete logs; never call the bank.", "Understood."},
		"lists and quotes":  {"1. check payment-api\n2. do not restart it\n3. tell bob@example.com", "Done: 1 and 3.\n> not 2", "\"never\" is what he said about 10.0.0.1:8080", "`quoted`"},
		"long lines":        {strings.Repeat("This is not the end of it, ", 40), strings.Repeat("It never ends. ", 50), "why not?", "Because."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			counter, err := tokens.For("")
			if err != nil {
				t.Fatal(err)
			}
			var messages []summary.Message
			for i, text := range texts {
				messages = append(messages, summary.Message{Seq: int64(i + 1), Role: []string{"user", "assistant"}[i%2], Text: text})
			}
			source, request, err := summary.Next(messages, counter, 100_000)
			if err != nil || len(source) != len(messages) {
				t.Fatalf("%d of %d messages at once, %v", len(source), len(messages), err)
			}
			for range 2 {
				turn, err := opspilot.Script(0)(t.Context(), request)
				if err != nil {
					t.Fatal(err)
				}
				made, err := summary.Parse(turn.Text)
				if err != nil {
					t.Fatalf("%v: %s", err, turn.Text)
				}
				if failed := summary.Check(source, made); failed != nil {
					t.Errorf("%s: %s\n%s", failed.Code, failed.Feedback(), turn.Text)
				}
				request.Messages = append(request.Messages, model.Message{Role: model.RoleAssistant, Text: turn.Text}, model.Message{Role: model.RoleUser, Text: "once more"})
			}
		})
	}
}
