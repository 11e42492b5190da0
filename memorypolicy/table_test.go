package memorypolicy_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/memorypolicy"
)

// labelled is a candidate of testdata/candidates.yaml.
type labelled struct {
	Class    string                 `yaml:"class"`
	Blind    bool                   `yaml:"blind"`
	Want     string                 `yaml:"want"`
	Kind     agent.MemoryKind       `yaml:"kind"`
	Key      string                 `yaml:"key"`
	Value    any                    `yaml:"value"`
	Source   agent.MemorySourceType `yaml:"source"`
	SourceID string                 `yaml:"source_id"`
	Writer   string                 `yaml:"writer"`
	Purpose  string                 `yaml:"purpose"`
	Quote    string                 `yaml:"quote"`
	// Message is the quote if it is empty.
	Message string `yaml:"message"`
}

func (l labelled) candidate(t *testing.T) memorypolicy.Candidate {
	t.Helper()
	value, err := json.Marshal(l.Value)
	require.NoError(t, err)
	or := func(s, other string) string {
		if s == "" {
			return other
		}
		return s
	}
	c := memorypolicy.Candidate{
		MemoryCandidate: agent.MemoryCandidate{
			Kind: l.Kind, Key: l.Key, Value: value, Purpose: l.Purpose, SourceType: l.Source,
			SourceID: or(l.SourceID, "m1"), Writer: or(l.Writer, "agent:opspilot@4"), Quote: l.Quote,
		},
		Room: agent.MemoryRoom{
			Scope: agent.Scope{Tenant: "acme", User: "ann", Environment: "production"}, Conversation: "c1", Agent: "opspilot",
		},
		Message: or(l.Message, l.Quote),
		Now:     time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC),
	}
	if l.Quote != "" {
		c.MessageID = "m1"
	}
	return c
}

// ground is what a class of candidates has to be refused for.
type ground string

const (
	groundNone     ground = "admitted"
	groundSecret   ground = "secret"
	groundPersonal ground = "personal"
	groundCommand  ground = "command"
	groundChatter  ground = "nothing said"
	groundMoment   ground = "event or only once"
	groundNotSaid  ground = "not said"
	groundSource   ground = "source"
	// groundAsked is of what may not be stored without a person being asked.
	groundAsked ground = "asked or refused"
)

var classes = []struct {
	name   string
	ground ground
}{
	{"secret_plain", groundSecret},
	{"secret_disguised", groundSecret},
	{"prose_password", groundSecret},
	{"card_id_phone", groundSecret},
	{"health_finance", groundPersonal},
	{"injection_authority", groundCommand},
	{"chatter", groundChatter},
	{"event_not_fact", groundMoment},
	{"ungrounded", groundNotSaid},
	{"denied_source", groundSource},
	{"others", groundAsked},
	{"wishes", groundAsked},
	{"past", groundAsked},
	{"preference_good", groundNone},
	{"fact_good", groundNone},
	{"task_good", groundNone},
}

// groundOf returns why a decision is what it is: of a rejection the last rule
// says it.
func groundOf(t *testing.T, d memorypolicy.Decision) ground {
	t.Helper()
	if d.Outcome != memorypolicy.Reject {
		return groundNone
	}
	switch id := d.Rules[len(d.Rules)-1].ID; id {
	case "content.secret", "content.access_token", "content.payment_card", "content.identity_number", "content.phone_number":
		return groundSecret
	case "content.health", "content.finance":
		return groundPersonal
	case "content.authority", "content.injection":
		return groundCommand
	case "content.chatter":
		return groundChatter
	case "event", "standing":
		return groundMoment
	default:
		if strings.HasPrefix(id, "grounded.") || strings.HasPrefix(id, "evidence.") {
			return groundNotSaid
		}
		if strings.HasPrefix(id, "source.") || id == "key.source" {
			return groundSource
		}
		return ground(id)
	}
}

// TestPOL3Candidates decides about a table of labelled candidates and prints
// precision and recall of each class. A candidate counts as found if it is
// refused for what its class is to be refused for; that it is refused at all is
// what has to be. A blind secret may be left to a reviewer or to the user, because
// nothing certain can be said of every one, but none is stored.
func TestPOL3Candidates(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/candidates.yaml")
	require.NoError(t, err)
	var table struct {
		Candidates []labelled `yaml:"candidates"`
	}
	require.NoError(t, yaml.UnmarshalWithOptions(text, &table, yaml.Strict()))
	require.GreaterOrEqual(t, len(table.Candidates), 170)

	allGood, allRefused := 0, 0
	for _, blind := range []bool{false, true} {
		type count struct{ all, right, found int }
		counts := map[string]*count{}
		wrongly := map[ground]int{}
		grounds := map[string]ground{}
		for _, c := range classes {
			counts[c.name], grounds[c.name] = &count{}, c.ground
		}
		good, refused, entered, bad, left := 0, 0, 0, 0, 0
		for _, l := range table.Candidates {
			if l.Blind != blind {
				continue
			}
			n := counts[l.Class]
			require.NotNil(t, n, "class %q is not known", l.Class)
			want := grounds[l.Class]
			label := "reject"
			switch want {
			case groundNone:
				label = "admit"
			case groundAsked:
				label = "ask"
			}
			require.Equal(t, label, l.Want, "class %s", l.Class)
			d := memorypolicy.Default().Evaluate(l.candidate(t))
			got := groundOf(t, d)
			if want == groundAsked {
				got = groundNone
				if d.Outcome != memorypolicy.Store {
					got = groundAsked
				}
			}
			n.all++
			if got == want {
				n.found++
			} else {
				wrongly[got]++
			}
			if (got == groundNone) == (want == groundNone) {
				n.right++
			} else {
				t.Logf("wrong: %s: %s: %s %v %q: %v", d.Outcome, l.Class, l.Key, l.Value, l.Quote, d.Rules[len(d.Rules)-1])
			}
			switch {
			case want == groundNone:
				good++
				if got != groundNone {
					refused++
				}
			default:
				bad++
				if got == groundNone {
					entered++
				}
				if got == groundNone && want == groundSecret {
					left++
					assert.True(t, blind && d.Outcome != memorypolicy.Store, "a secret enters: %s: %s: %q", d.Outcome, l.Class, l.Quote)
				}
			}
			if want == groundSecret && got != groundNone {
				assert.Equal(t, want, got, "a secret is refused by chance only: %s: %q", l.Class, l.Quote)
			}
			if got != want && got != groundNone && want != groundNone {
				t.Logf("refused, but for %q: %s: %q: %v", got, l.Class, l.Quote, d.Rules[len(d.Rules)-1])
			}
		}
		t.Logf("%-20s %4s %8s %9s %7s   blind: %v", "class", "n", "decided", "precision", "recall", blind)
		for _, c := range classes {
			n := counts[c.name]
			t.Logf("%-20s %4d %7.1f%% %8.1f%% %6.1f%%", c.name, n.all, percent(n.right, n.all), percent(n.found, n.found+wrongly[c.ground]), percent(n.found, n.all))
		}
		t.Logf("good candidates refused: %d of %d; bad ones admitted: %d of %d; secrets left to people: %d", refused, good, entered, bad, left)
		assert.Equal(t, counts["others"].all+counts["wishes"].all+counts["past"].all, counts["others"].right+counts["wishes"].right+counts["past"].right, "stored unasked")
		if !blind {
			assert.Zero(t, entered, "bad candidates enter")
		}
		allGood, allRefused = allGood+good, allRefused+refused
	}
	assert.LessOrEqual(t, allRefused*100, 2*allGood, "more than 2 %% of the good candidates are refused")
}

func percent(n, of int) float64 {
	if of == 0 {
		return 100
	}
	return 100 * float64(n) / float64(of)
}
