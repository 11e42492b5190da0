package opspilot

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent"
)

// maxQuoteBytes is how much of a log line an answer quotes.
const maxQuoteBytes = 400

// verdict is what the findings amount to.
type verdict int

const (
	unclear verdict = iota
	healthy
	recovered   // healthy now, but errors are logged
	leaking     // connections outlive their requests
	exhausted   // all connections in use, none leaked
	unreachable // no status, but a log
	untried     // healthy, but nobody has paid since the start
)

func (f findings) verdict() verdict {
	pool := f.status.value.Pool
	switch {
	case !f.status.known && f.failures.known:
		return unreachable
	case !f.status.known || !f.failures.known && !f.poolExhausted():
		return unclear
	case f.poolExhausted() && pool.LeakedConnections > 0:
		return leaking
	case f.poolExhausted():
		return exhausted
	case f.failures.value.MatchedTotal > 0:
		return recovered
	}
	return healthy
}

// answer composes the final answer: verdict, evidence, next steps, limits.
func (s observed) answer(r report) string {
	if r.restart.known {
		return s.answerRestarted(r)
	}
	p, f := s.phrases, r.before
	verdict := f.verdict()
	var text strings.Builder
	fmt.Fprintf(&text, p.verdicts[verdict], f.service.Name, f.service.Environment)
	if verdict == leaking {
		text.WriteString("\n\n" + p.cause(f))
	}
	if r.restart.asked {
		text.WriteString("\n\n" + p.whyNot(r.restart.observation))
	}
	list(&text, p.evidence, s.evidence(f))
	s.steps(&text, p.next[verdict], f)
	if !r.restart.asked && (verdict == leaking || s.wish.fix && s.forbidden()) {
		text.WriteString("\n" + s.offer() + "\n")
	}
	if verdict == leaking {
		text.WriteString("\n" + p.notSeen + "\n")
	}
	if s.because != "" {
		text.WriteString("\n" + s.because + "\n")
	}
	return strings.TrimRight(text.String(), "\n")
}

// offer says what becomes of a restart that was not proposed.
func (s observed) offer() string {
	said, covered := s.known.forbids(RestartService)
	switch {
	case covered && !said.asks():
		return fmt.Sprintf(s.phrases.forbidden, said.Text)
	case covered:
		return fmt.Sprintf(s.phrases.offerAsked, said.Text)
	case s.wish.handsOff:
		return s.phrases.handsOff
	}
	return s.phrases.offer
}

// answerRestarted says what was before the restart and what is now.
func (s observed) answerRestarted(r report) string {
	p, f := s.phrases, r.after
	verdict := f.verdict()
	if verdict == healthy && f.status.value.Requests.Succeeded == 0 {
		verdict = untried
	}
	var text strings.Builder
	fmt.Fprintf(&text, p.results[verdict], f.service.Name, f.service.Environment)
	text.WriteString("\n\n" + p.cause(r.before))
	done := r.restart.value
	fmt.Fprintf(&text, "\n\n"+p.restarted, done.FromVersion, clock(done.RestartedAt), r.restart.observation.citation())
	list(&text, p.before, s.evidence(r.before))
	list(&text, p.after, s.evidence(f))
	// What no restart mends: the leak itself.
	next := slices.Clone(p.next[leaking][1:])
	if verdict != leaking {
		next = append(next, p.next[verdict]...)
	}
	s.steps(&text, next, f)
	text.WriteString("\n" + p.notSeen + "\n")
	if s.because != "" {
		text.WriteString("\n" + s.because + "\n")
	}
	return strings.TrimRight(text.String(), "\n")
}

// whyNot says why a restart that was proposed did not happen. An error of a
// write promises that it did not; a result that cannot be read promises nothing.
func (p phrases) whyNot(o observation) string {
	if o.envelope.Error == nil {
		return fmt.Sprintf(p.unclearRestart, o.problem(), o.citation())
	}
	why, known := p.refusals[agent.ToolErrorCode(o.problem())]
	if !known {
		why = fmt.Sprintf(p.refused, o.problem())
	}
	return fmt.Sprintf(p.notRestarted, why, o.citation())
}

func list(text *strings.Builder, heading string, lines []string) {
	text.WriteString("\n\n" + heading + "\n")
	for i, line := range lines {
		if i > 0 {
			text.WriteString("\n")
		}
		text.WriteString("- " + line)
	}
}

func (s observed) steps(text *strings.Builder, steps []string, f findings) {
	text.WriteString("\n")
	if len(steps) == 0 {
		return
	}
	text.WriteString("\n" + s.phrases.nextSteps + "\n")
	for i, step := range steps {
		fmt.Fprintf(text, "%d. %s\n", i+1, fmt.Sprintf(step, f.service.Name))
	}
}

func (s observed) evidence(f findings) []string {
	p := s.phrases
	var lines []string
	if f.status.known {
		v := f.status.value
		lines = append(lines,
			fmt.Sprintf(p.health, healthText(v), clock(v.StartedAt), v.UptimeSeconds, f.status.observation.citation()),
			fmt.Sprintf(p.pool, v.Pool.InUse, v.Pool.Size, v.Pool.LeakedConnections, v.Pool.LeakedBytes, v.Pool.LongestUseMillis, f.status.observation.citation()),
			fmt.Sprintf(p.requests, v.Requests.Total, v.Requests.Succeeded, v.Requests.InFlight, v.Requests.Failed, v.Requests.PoolTimeouts, v.Requests.BankTimeouts, v.Latency.P95Millis, f.status.observation.citation()))
	} else {
		lines = append(lines, fmt.Sprintf(p.unusable, ServiceStatus, f.status.observation.problem(), f.status.observation.citation()))
	}
	lines = append(lines, p.log("ERROR", f.failures)...)
	if f.warnings.asked {
		lines = append(lines, p.log("WARN", f.warnings)...)
	}
	return lines
}

// log describes one log query: counts, times, what the lines say, one example.
func (p phrases) log(level string, lines fact[foundLines]) []string {
	cited := lines.observation.citation()
	if !lines.known {
		return []string{fmt.Sprintf(p.unusable, QueryLogs+" "+level, lines.observation.problem(), cited)}
	}
	v := lines.value
	if v.MatchedTotal == 0 || v.FirstTime == nil || v.LastTime == nil {
		return []string{fmt.Sprintf(p.noLines, level, cited)}
	}
	texts := []string{fmt.Sprintf(p.lines, v.MatchedTotal, level, clock(*v.FirstTime), clock(*v.LastTime), tally(v.Lines), v.Returned, cited)}
	if len(v.Lines) > 0 {
		texts = append(texts, fmt.Sprintf(p.example, quote(v.Lines[0]), cited))
	}
	return texts
}

// cause is the hypothesis for a leak, from numbers alone.
func (p phrases) cause(f findings) string {
	v := f.status.value
	text := fmt.Sprintf(p.leak, v.Pool.LeakedConnections, v.Pool.Size)
	if v.Requests.BankTimeouts == int64(v.Pool.LeakedConnections) {
		text += fmt.Sprintf(p.sameCount, v.Requests.BankTimeouts)
	} else if v.Requests.BankTimeouts > 0 {
		text += fmt.Sprintf(p.otherCount, v.Requests.BankTimeouts)
	}
	if f.failures.known && f.failures.value.FirstTime != nil {
		text += fmt.Sprintf(p.since, clock(*f.failures.value.FirstTime))
	}
	return text
}

func (s observed) answerNotFound(found foundServices, o observation) string {
	p := s.phrases
	names := func(list []string) string {
		if len(list) == 0 {
			return ""
		}
		return fmt.Sprintf(p.others, strings.Join(list, ", "))
	}
	if len(found.Services) > 0 {
		var matches []string
		for _, service := range found.Services {
			matches = append(matches, service.Name+" ("+service.Environment+")")
		}
		return fmt.Sprintf(p.severalFound, s.service, strings.Join(matches, ", "), o.citation())
	}
	return fmt.Sprintf(p.notFound, s.service, found.Environment, names(found.Others), o.citation())
}

func (s observed) answerUnusable(o observation) string {
	return fmt.Sprintf(s.phrases.noRegistry, s.service, o.problem(), o.citation())
}

func healthText(v observedStatus) string {
	if v.Health.Reason == "" {
		return v.Health.Status
	}
	return v.Health.Status + " (" + v.Health.Reason + ")"
}

// tally counts the messages of the lines, most frequent first.
func tally(lines []json.RawMessage) string {
	counts := map[string]int{}
	for _, line := range lines {
		var fields struct {
			Message string `json:"msg"`
		}
		if json.Unmarshal(line, &fields) == nil {
			counts[fields.Message]++
		}
	}
	messages := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		if counts[a] != counts[b] {
			return counts[b] - counts[a]
		}
		return strings.Compare(a, b)
	})
	var parts []string
	for _, message := range messages[:min(len(messages), 5)] {
		parts = append(parts, fmt.Sprintf("%d× %s", counts[message], quote([]byte(message))))
	}
	return strings.Join(parts, ", ")
}

// quote shows text that others wrote as data: on one line, inside a code span
// that it cannot close.
func quote(text []byte) string {
	inline := strings.NewReplacer("`", "'", "\n", " ", "\r", " ").Replace(string(text))
	return "`" + cut(inline, maxQuoteBytes) + "`"
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
