package agent_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent"
)

func TestValidateSession(t *testing.T) {
	t.Parallel()
	many := func(n int) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprintf("tool_%d", i))
		}
		return list
	}
	confirmed := func(n int) (list []agent.ConfirmedFact) {
		for i := range n {
			list = append(list, agent.ConfirmedFact{Key: fmt.Sprintf("k%d", i), Value: "v"})
		}
		return list
	}
	fact := func(key, value string) agent.SessionChange {
		return agent.SessionChange{Facts: []agent.ConfirmedFact{{Key: key, Value: value}}}
	}
	for name, test := range map[string]struct {
		change agent.SessionChange
		field  string
	}{
		"nothing":         {agent.SessionChange{}, ""},
		"all kinds":       {agent.SessionChange{Facts: confirmed(2), Forbid: many(1), Lift: []string{"p-1"}}, ""},
		"64 of each":      {agent.SessionChange{Facts: confirmed(64), Forbid: many(64), Lift: many(64)}, ""},
		"longest value":   {fact("env", strings.Repeat("v", 256)), ""},
		"Chinese value":   {fact("current.service_2", "支付服务"), ""},
		"65 facts":        {agent.SessionChange{Facts: confirmed(65)}, "session.facts"},
		"65 forbidden":    {agent.SessionChange{Forbid: many(65)}, "session.forbid"},
		"65 lifted":       {agent.SessionChange{Lift: many(65)}, "session.lift"},
		"no key":          {fact("", "secret"), "session.facts"},
		"upper case key":  {fact("Env", "secret"), "session.facts"},
		"key of 65 bytes": {fact(strings.Repeat("k", 65), "secret"), "session.facts"},
		"key with a line": {fact("env\n", "secret"), "session.facts"},
		"Cyrillic key":    {fact("\u0435nv", "secret"), "session.facts"},
		"key twice":       {agent.SessionChange{Facts: append(confirmed(1), agent.ConfirmedFact{Key: "k0", Value: "secret"})}, "session.facts"},
		"no value":        {fact("env", ""), "session.facts"},
		"long value":      {fact("env", strings.Repeat("s", 257)), "session.facts"},
		"value of lines":  {fact("env", "secret\nline"), "session.facts"},
		"NUL in a value":  {fact("env", "secret\x00"), "session.facts"},
		"DEL in a value":  {fact("env", "secret\x7f"), "session.facts"},
		"value in Latin":  {fact("env", "secret\xe9"), "session.facts"},
		"no tool":         {agent.SessionChange{Forbid: []string{""}}, "session.forbid"},
		"tool of lines":   {agent.SessionChange{Forbid: []string{"secret\n"}}, "session.forbid"},
		"no prohibition":  {agent.SessionChange{Lift: []string{"p-1", ""}}, "session.lift"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := valid()
			r.Session = &test.change
			err := r.Validate()
			if test.field == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var typed *agent.RequestError
			if !errors.As(err, &typed) || typed.Field != test.field {
				t.Fatalf("got %v, want a RequestError about %s", err, test.field)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Fatal("the error repeats what was sent")
			}
		})
	}
}
