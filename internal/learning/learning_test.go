package learning_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/internal/learning"
)

func at(text string) *time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		panic(err)
	}
	t = t.UTC()
	return &t
}

func TestParse(t *testing.T) {
	t.Parallel()
	one := `{"kind":"profile_preference","key":"preference.food","value":{"item":"tea","sentiment":"likes"},"quote":"I like tea"}`
	tea := learning.Proposal{Kind: agent.MemoryPreference, Key: "preference.food", Value: json.RawMessage(`{"item":"tea","sentiment":"likes"}`), Quote: "I like tea"}
	whole := tea
	whole.ValidFrom, whole.ValidUntil = at("2026-03-01T08:00:00Z"), at("2026-04-01T00:00:00Z")
	back := learning.Proposal{Kind: agent.MemoryPreference, Key: "preference.food", Quote: "no tea any more", Retracts: true}
	which := back
	which.Value = json.RawMessage(`{"item":"tea"}`)
	for text, want := range map[string][]learning.Proposal{
		"": nil, " \n": nil, `{"candidates":[]}`: nil,
		`{"candidates":[` + one + `]}`:                               {tea},
		"```json\n{\"candidates\": [" + one + ", " + one + "]}\n```": {tea, tea},
		`{"candidates":[` + one[:len(one)-1] + `,"valid_from":"2026-03-01T16:00:00+08:00","valid_until":"2026-04-01T00:00:00Z","retracts":false}]}`: {whole},
		`{"candidates":[` + one[:len(one)-1] + `,"valid_from":null,"valid_until":"","retracts":null}]}`:                                             {tea},
		`{"candidates":[{"kind":"profile_preference","key":"preference.food","value":{"item":"tea"},"quote":"no tea any more","retracts":true}]}`:   {which},
		`{"candidates":[{"kind":"profile_preference","key":"preference.food","value":null,"quote":"no tea any more","retracts":true}]}`:             {back},
	} {
		if got, err := learning.Parse(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %#v, %v\nwant %#v", text, got, err, want)
		}
	}
	with := func(field string) string { return `{"candidates":[` + one[:len(one)-1] + `,` + field + `}]}` }
	for name, text := range map[string]string{
		"no JSON":            "There is nothing to remember.",
		"text around":        `Here: {"candidates":[]}`,
		"two objects":        `{"candidates":[]}{"candidates":[]}`,
		"a list":             `[` + one + `]`,
		"cut off":            `{"candidates":[` + one,
		"null":               `{"candidates":null}`,
		"no list":            `{}`,
		"another list":       `{"memories":[]}`,
		"the list twice":     `{"candidates":[],"candidates":[]}`,
		"other letters":      `{"Candidates":[]}`,
		"unknown field":      with(`"confidence":1`),
		"a field twice":      with(`"quote":"other"`),
		"no quote":           `{"candidates":[{"kind":"a","key":"b","value":1}]}`,
		"no key":             `{"candidates":[{"kind":"a","quote":"b","value":1}]}`,
		"no kind":            `{"candidates":[{"key":"a","quote":"b","value":1}]}`,
		"a number for a key": `{"candidates":[{"kind":"a","key":1,"value":1,"quote":"b"}]}`,
		"a date alone":       with(`"valid_from":"2026-03-01"`),
		"a number as a time": with(`"valid_from":1770000000`),
		"text for a truth":   with(`"retracts":"true"`),
		"candidate is text":  `{"candidates":["x"]}`,
		"invalid UTF-8":      "{\"candidates\":[{\"kind\":\"a\",\"key\":\"b\",\"value\":1,\"quote\":\"\xff\"}]}",
		"17 candidates":      `{"candidates":[` + strings.Repeat(one+",", 16) + one + `]}`,
		"too long":           strings.Repeat(" ", 128<<10) + `{"candidates":[]}`,
	} {
		got, err := learning.Parse(text)
		if err == nil || got != nil {
			t.Errorf("%s: got %v, %v", name, got, err)
			continue
		}
		if strings.Contains(err.Error(), "tea") || strings.Contains(err.Error(), "nothing to remember") {
			t.Errorf("%s: the error repeats content: %v", name, err)
		}
	}
	if got, err := learning.Parse(`{"candidates":[` + strings.Repeat(one+",", 15) + one + `]}`); err != nil || len(got) != 16 {
		t.Errorf("16 candidates: %d, %v", len(got), err)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	own := "I like tea, not coffee." + learning.Gap + " 以后默认用生产环境。 Grüße 👋"
	good := learning.Proposal{Kind: agent.MemoryPreference, Key: "preference.food", Value: json.RawMessage(`"tea"`), Quote: "I like tea"}
	for name, c := range map[string]struct {
		edit func(*learning.Proposal)
		want error
	}{
		"good":                  {func(*learning.Proposal) {}, nil},
		"all of the first part": {func(p *learning.Proposal) { p.Quote = "I like tea, not coffee." }, nil},
		"inside of Chinese":     {func(p *learning.Proposal) { p.Quote = "默认用生产环境" }, nil},
		"taken back":            {func(p *learning.Proposal) { p.Value, p.Retracts = nil, true }, nil},
		"largest value":         {func(p *learning.Proposal) { p.Value = json.RawMessage(`"` + strings.Repeat("x", 4094) + `"`) }, nil},
		"in order": {func(p *learning.Proposal) {
			p.ValidFrom, p.ValidUntil = at("2026-01-01T00:00:00Z"), at("2026-01-02T00:00:00Z")
		}, nil},
		"no kind":                {func(p *learning.Proposal) { p.Kind = "secret" }, learning.ErrKind},
		"no key":                 {func(p *learning.Proposal) { p.Key = "" }, learning.ErrKey},
		"long key":               {func(p *learning.Proposal) { p.Key = strings.Repeat("k", 129) }, learning.ErrKey},
		"no value":               {func(p *learning.Proposal) { p.Value = nil }, learning.ErrNoValue},
		"null":                   {func(p *learning.Proposal) { p.Value = json.RawMessage(" null ") }, learning.ErrNoValue},
		"large value":            {func(p *learning.Proposal) { p.Value = json.RawMessage(`"` + strings.Repeat("x", 4095) + `"`) }, learning.ErrValueSize},
		"no quote":               {func(p *learning.Proposal) { p.Quote = "" }, learning.ErrNoQuote},
		"a quote of marks":       {func(p *learning.Proposal) { p.Quote = " , 👋" }, learning.ErrNoQuote},
		"long quote":             {func(p *learning.Proposal) { p.Quote = strings.Repeat("x", 2049) }, learning.ErrQuoteSize},
		"other case":             {func(p *learning.Proposal) { p.Quote = "i like tea" }, learning.ErrNotQuoted},
		"invented":               {func(p *learning.Proposal) { p.Quote = "I like coffee" }, learning.ErrNotQuoted},
		"over the gap":           {func(p *learning.Proposal) { p.Quote = "coffee." + learning.Gap + " 以后" }, learning.ErrNotQuoted},
		"without the gap":        {func(p *learning.Proposal) { p.Quote = "coffee. 以后" }, learning.ErrNotQuoted},
		"part of a word":         {func(p *learning.Proposal) { p.Quote = "like te" }, learning.ErrPartOfAWord},
		"part of a word, before": {func(p *learning.Proposal) { p.Quote = "ike tea" }, learning.ErrPartOfAWord},
		"bytes of a character":   {func(p *learning.Proposal) { p.Quote = "Gr\xc3" }, learning.ErrNotQuoted},
		"out of order": {func(p *learning.Proposal) {
			p.ValidFrom, p.ValidUntil = at("2026-01-02T00:00:00Z"), at("2026-01-02T00:00:00Z")
		}, learning.ErrTimes},
		"before anybody's memory": {func(p *learning.Proposal) { p.ValidFrom = at("1899-12-31T00:00:00Z") }, learning.ErrTimes},
		"after it":                {func(p *learning.Proposal) { p.ValidUntil = at("2201-01-01T00:00:00Z") }, learning.ErrTimes},
	} {
		p := good
		c.edit(&p)
		if err := learning.Check(own, p); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
	// A word that stands whole somewhere else is a quote.
	good.Quote = "tea"
	if err := learning.Check("steam and tea", good); err != nil {
		t.Error(err)
	}
}

func TestCandidate(t *testing.T) {
	t.Parallel()
	p := learning.Proposal{
		Kind: agent.MemoryTask, Key: "task.current", Value: json.RawMessage(`{"name":"x"}`), Quote: "until Friday",
		ValidFrom: at("2026-01-01T00:00:00Z"), ValidUntil: at("2026-01-02T00:00:00Z"), Retracts: true,
	}
	want := agent.MemoryCandidate{
		Kind: agent.MemoryTask, Key: "task.current", Value: []byte(`{"name":"x"}`), Quote: "until Friday",
		ValidFrom: at("2026-01-01T00:00:00Z"), ValidUntil: at("2026-01-02T00:00:00Z"), Retracts: true,
		SourceType: agent.SourceUserStatement, SourceID: "m-1", MessageID: "m-1", Writer: "agent:opspilot@4",
	}
	if got := p.Candidate("m-1", "agent:opspilot@4"); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	for _, text := range []string{fmt.Sprintf("%v %+v %#v %s %q", p, p, p, p, p), fmt.Sprint([]learning.Proposal{p})} {
		if strings.Contains(text, "Friday") || strings.Contains(text, "task.current") || strings.Contains(text, "name") {
			t.Errorf("a proposal prints its content: %s", text)
		}
	}
}

// FuzzParse: what is read is bounded, and what is checked stands in the text.
func FuzzParse(f *testing.F) {
	f.Add(`{"candidates":[{"kind":"profile_preference","key":"k","value":{"a":[1]},"quote":"I like tea","valid_from":"2026-03-01T00:00:00+01:00","retracts":false}]}`)
	f.Add("```\n{\"candidates\":[]}\n```")
	f.Add(`{"candidates":[{"kind":"a","key":"k","quote":"\ud800","retracts":true}]}`)
	const own = "I like tea." + learning.Gap + "以后"
	f.Fuzz(func(t *testing.T, text string) {
		proposals, err := learning.Parse(text)
		if err != nil && proposals != nil || len(proposals) > agent.MaxMemoryCandidates {
			t.Fatalf("%d proposals, %v", len(proposals), err)
		}
		for _, p := range proposals {
			if p.Value != nil && !json.Valid(p.Value) {
				t.Fatalf("value %q", p.Value)
			}
			if learning.Check(own, p) == nil && (!strings.Contains(own, p.Quote) || p.Value == nil && !p.Retracts) {
				t.Fatalf("accepted %q, %q", p.Quote, p.Value)
			}
		}
	})
}
