package memorypolicy_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/memorypolicy"
)

func TestZZBlind(t *testing.T) {
	text, err := os.ReadFile(os.Getenv("BLIND"))
	require.NoError(t, err)
	var table struct {
		Candidates []labelled `yaml:"candidates"`
	}
	require.NoError(t, yaml.UnmarshalWithOptions(text, &table, yaml.Strict()))
	grounds := map[string]ground{}
	for _, c := range classes {
		grounds[c.name] = c.ground
	}
	all, right := map[string]int{}, map[string]int{}
	stored := map[string]int{}
	for _, l := range table.Candidates {
		want := grounds[l.Class]
		d := memorypolicy.Default().Evaluate(l.candidate(t))
		ok := false
		switch want {
		case groundNone:
			ok = d.Outcome != memorypolicy.Reject
		case groundAsked:
			ok = d.Outcome != memorypolicy.Store
		default:
			ok = d.Outcome == memorypolicy.Reject
			if d.Outcome == memorypolicy.Store {
				stored[l.Class]++
			}
		}
		all[l.Class]++
		if ok {
			right[l.Class]++
		} else {
			fmt.Printf("WRONG %s %v: %s %v %q: %v\n", l.Class, d.Outcome, l.Key, l.Value, l.Quote, d.Rules[len(d.Rules)-1])
		}
	}
	for _, c := range classes {
		fmt.Printf("%-22s %d of %d, stored although bad %d\n", c.name, right[c.name], all[c.name], stored[c.name])
	}
}
