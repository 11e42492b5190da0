package opspilot

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/examples/opspilot/services"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
	"github.com/fairlead/fairlead/tool"
)

// TurnDelay is a pause before each response that lets a person follow the demo.
const TurnDelay = 150 * time.Millisecond

// maxNameBytes is how much of a name in a question is looked for.
const maxNameBytes = 100

// Lines asked for at first, and again when the answer came back truncated.
var logLimits = []int{20, 5, 1}

// Script plays the model of the demo. It is a policy, not a recording: each
// turn follows from the tool results in the request, and every number of the
// answer is one that a tool returned. It finds the service that the question
// names, or takes the one that the conversation is about, looks at its status
// and errors, looks at warnings when connections run out, and then says what it
// saw. If connections have leaked and the user's words ask for a repair, it
// proposes a restart first, unless the user forbade that; when it was done it
// looks again and says what was before and what is now. It also plays the models
// that summarize conversations and say what to remember. Each turn takes delay.
func Script(delay time.Duration) scripted.Script {
	return func(_ context.Context, request model.Request) (scripted.Turn, error) {
		turn, err := nextTurn(request)
		turn.Delay = delay
		return turn, err
	}
}

func nextTurn(request model.Request) (scripted.Turn, error) {
	if asksForSummary(request) {
		return summarize(request)
	}
	if lesson, asked := scripted.LessonOf(request); asked {
		return learn(lesson)
	}
	seen := observeRequest(request)
	if service, settled := seen.settled(); settled {
		return examine(seen, service)
	}
	if seen.service == "" && seen.setsDefault {
		return say(seen.phrases.heardDefault), nil
	}
	if seen.service == "" {
		return say(seen.phrases.askName), nil
	}
	find, done := seen.observations.last(FindService, nil)
	if !done {
		return do(proposed{FindService, findServiceArguments{Query: seen.service}})
	}
	var found foundServices
	if !find.decode(&found) {
		return say(seen.answerUnusable(find)), nil
	}
	if found.Chosen != nil {
		return examine(seen, *found.Chosen)
	}
	if service, because, chosen := seen.choose(found); chosen {
		seen.because = because
		return examine(seen, service)
	}
	return say(seen.answerNotFound(found, find)), nil
}

// examine looks at one service until there is enough for an answer, and mends
// it in between if that is asked for.
func examine(seen observed, service foundService) (scripted.Turn, error) {
	before, attempt, after := seen.observations.around(RestartService)
	r := report{before: findings{service: service}}
	if missing := r.before.gather(before, ""); len(missing) > 0 {
		return do(missing...)
	}
	if attempt == nil {
		if r.before.verdict() == leaking && seen.wish.fix && !seen.forbidden() {
			return do(proposed{RestartService, restartServiceArguments{ServiceID: service.ID}})
		}
		return say(seen.answer(r)), nil
	}
	r.restart.read(*attempt)
	if r.restart.known {
		r.after.service = service
		since := r.restart.value.RestartedAt.UTC().Format(time.RFC3339Nano)
		if missing := r.after.gather(after, since); len(missing) > 0 {
			return do(missing...)
		}
	}
	return say(seen.answer(r)), nil
}

// gather reads what is known of the service, in the log since that time if one
// is given, and returns the calls whose results are still missing.
func (f *findings) gather(seen observations, since string) []proposed {
	status, haveStatus := seen.last(ServiceStatus, nil)
	failures, haveFailures := seen.last(QueryLogs, isLevel("ERROR"))
	if !haveStatus || !haveFailures {
		return []proposed{
			{ServiceStatus, serviceStatusArguments{ServiceID: f.service.ID}},
			{QueryLogs, queryLogsArguments{ServiceID: f.service.ID, Level: "ERROR", Since: since, Limit: logLimits[0]}},
		}
	}
	if again, narrower := narrow(failures); narrower {
		return []proposed{again}
	}
	f.status.read(status)
	f.failures.read(failures)
	if !f.poolExhausted() {
		return nil
	}
	warnings, haveWarnings := seen.last(QueryLogs, isLevel("WARN"))
	if !haveWarnings {
		return []proposed{{QueryLogs, queryLogsArguments{ServiceID: f.service.ID, Level: "WARN", Since: since, Contains: "pool", Limit: logLimits[0]}}}
	}
	if again, narrower := narrow(warnings); narrower {
		return []proposed{again}
	}
	f.warnings.read(warnings)
	return nil
}

// narrow asks for fewer lines when the last answer did not fit the prompt.
func narrow(o observation) (again proposed, narrower bool) {
	if !o.envelope.Truncated {
		return again, false
	}
	var a queryLogsArguments
	if json.Unmarshal([]byte(o.call.Arguments), &a) != nil {
		return again, false
	}
	for _, limit := range logLimits {
		if limit < a.Limit {
			a.Limit = limit
			return proposed{QueryLogs, a}, true
		}
	}
	return again, false
}

func isLevel(level string) func(model.ToolCall) bool {
	return func(call model.ToolCall) bool {
		var a queryLogsArguments
		return json.Unmarshal([]byte(call.Arguments), &a) == nil && a.Level == level
	}
}

// observed is what the script reads out of one request.
type observed struct {
	phrases phrases
	// service is the name that the user's words contain, "" if none; named says
	// that the newest words do.
	service string
	named   bool
	// environment is the one that the newest words name, "" if none; setsDefault
	// says that they want it to be the one that is meant from now on.
	environment string
	setsDefault bool
	// because says why a service of that name was taken and no other, "" if the
	// user's words did.
	because string
	// wish is what the user wants done.
	wish wish
	// known is what the application says about the conversation.
	known knownContext
	// observations are the answered calls since the user's last message.
	observations observations
}

type observations []observation

// observation is one tool call with its result.
type observation struct {
	call     model.ToolCall
	envelope envelope
	readable bool
}

// envelope is what a tool message holds: a result, or the error in its place.
type envelope struct {
	tool.Envelope
	Error *struct {
		Code string `json:"code"`
	} `json:"error"`
}

func observeRequest(request model.Request) observed {
	var seen observed
	question := ""
	calls := map[string]model.ToolCall{}
	newest := lastOf(request.Messages, model.RoleUser)
	for i, message := range request.Messages {
		// Whatever the newest words look like, they are the user's.
		if known, isContext := contextIn(message); isContext && i != newest {
			seen.known = known
			continue
		}
		switch message.Role {
		case model.RoleUser:
			question = message.Text
			seen.observations = nil
			seen.phrases = phrasesFor(question)
			seen.wish = seen.wish.after(question)
			seen.environment, seen.setsDefault = environmentIn(question), setsDefault(question)
			// "And its error log?" means the service named before.
			name := serviceName(question)
			if seen.named = name != ""; seen.named {
				seen.service = name
			}
		case model.RoleAssistant:
			for _, call := range message.Calls {
				calls[call.ID] = call
			}
		case model.RoleTool:
			o := observation{call: calls[message.CallID]}
			o.readable = json.Unmarshal([]byte(message.Text), &o.envelope) == nil
			seen.observations = append(seen.observations, o)
		}
	}
	if p, covered := seen.known.forbids(RestartService); covered && p.asks() {
		// To be asked is all that the user demanded earlier, and a confirmation asks.
		seen.wish = wish{}.after(question)
	}
	return seen
}

func lastOf(messages []model.Message, role model.Role) int {
	for i := len(messages) - 1; i >= 0; i-- {
		if messages[i].Role == role {
			return i
		}
	}
	return -1
}

// settled returns the service that the conversation is about, if the newest
// words name none and earlier ones no other.
func (s observed) settled() (service foundService, settled bool) {
	service, known := s.known.service()
	other := isServiceLike(s.service) && !strings.Contains(lettersAndDigits(service.Name), lettersAndDigits(s.service))
	return service, known && !s.named && !other
}

// forbidden says that the user's prohibition stands against a restart.
func (s observed) forbidden() bool {
	p, covered := s.known.forbids(RestartService)
	return covered && !p.asks()
}

// last returns the newest answered call of a tool that fits; nil fits all.
func (s observations) last(name string, fits func(model.ToolCall) bool) (observation, bool) {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i].call.Name == name && (fits == nil || fits(s[i].call)) {
			return s[i], true
		}
	}
	return observation{}, false
}

// around splits the observations at the newest call of a tool; at is nil and
// all are before if there is none.
func (s observations) around(name string) (before observations, at *observation, after observations) {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i].call.Name == name {
			return s[:i], &s[i], s[i+1:]
		}
	}
	return s, nil, nil
}

// decode reads a complete, successful result.
func (o observation) decode(into any) bool {
	return o.readable && o.envelope.Error == nil && !o.envelope.Truncated && json.Unmarshal(o.envelope.Content, into) == nil
}

// citation names the stored result that a statement rests on.
func (o observation) citation() string {
	id := o.envelope.ResultID
	if id == "" {
		id = o.call.ID
	}
	return "[" + o.call.Name + " " + id + "]"
}

// problem says why there is no usable result.
func (o observation) problem() string {
	switch {
	case o.envelope.Error != nil:
		return o.envelope.Error.Code
	case o.envelope.Truncated:
		return "truncated"
	}
	return "unreadable"
}

var (
	hyphenatedName  = regexp.MustCompile(`[a-z][a-z0-9]*(?:-[a-z0-9]+)+`)
	serviceLikeName = regexp.MustCompile(`-(?:api|service|svc|worker|gateway|server|app|db)$`)
)

// serviceName finds the service that a text names: a word like payment-api,
// else another word with a hyphen, else a topic in English or Chinese.
func serviceName(text string) string {
	lower := strings.ToLower(text)
	names := hyphenatedName.FindAllString(lower, -1)
	if i := slices.IndexFunc(names, serviceLikeName.MatchString); i >= 0 {
		return cut(names[i], maxNameBytes)
	}
	if len(names) > 0 {
		return cut(names[0], maxNameBytes)
	}
	for _, topic := range topics {
		if strings.Contains(lower, topic.word) {
			return topic.query
		}
	}
	return ""
}

var topics = []struct{ word, query string }{{"支付", "payment"}, {"payment", "payment"}, {"账", "ledger"}, {"ledger", "ledger"}}

// isServiceLike reports whether a name that serviceName found is surely meant as
// one: "follow-up" is not.
func isServiceLike(name string) bool {
	return serviceLikeName.MatchString(name) || slices.ContainsFunc(topics, func(t struct{ word, query string }) bool { return t.query == name })
}

// proposed is a call that is not yet in wire form.
type proposed struct {
	name      string
	arguments any
}

func do(calls ...proposed) (scripted.Turn, error) {
	var turn scripted.Turn
	for _, call := range calls {
		arguments, err := json.Marshal(call.arguments)
		if err != nil {
			return turn, err
		}
		turn.Calls = append(turn.Calls, scripted.Call{Name: call.name, Arguments: string(arguments)})
	}
	return turn, nil
}

func say(text string) scripted.Turn { return scripted.Turn{Text: text} }

// report is what an answer is made of. restart is set if one was proposed, after
// if it was done.
type report struct {
	before  findings
	restart fact[restartedService]
	after   findings
}

// findings are the facts about a service at one time.
type findings struct {
	service  foundService
	status   fact[observedStatus]
	failures fact[foundLines]
	warnings fact[foundLines]
}

// fact is one tool result, or the reason why there is none.
type fact[T any] struct {
	asked       bool
	known       bool
	value       T
	observation observation
}

func (f *fact[T]) read(o observation) {
	f.asked, f.observation = true, o
	f.known = o.decode(&f.value)
}

func (f findings) poolExhausted() bool {
	if f.status.known {
		return f.status.value.Health.Reason == services.ReasonPoolExhausted
	}
	for _, line := range f.failures.value.Lines {
		if strings.Contains(string(line), "pool: no free connection") {
			return true
		}
	}
	return false
}
