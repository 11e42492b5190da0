package main

import (
	"strings"
	"testing"
)

func TestSession(t *testing.T) {
	t.Parallel()
	ask := []string{"session", "c-1", "--tenant", "acme", "--user", "ann", "--environment", "production"}
	for name, args := range map[string][]string{"session.txt": nil, "session.json": {"--json"}} {
		o := console{reader: &fakeReader{}}.invoke(t.Context(), append(ask, args...)...)
		if o.code != exitOK || o.errOut != "" {
			t.Errorf("%s: %+v", name, o)
		}
		golden(t, name, o.out)
	}
	for name, test := range map[string]struct {
		args []string
		says string
	}{
		"another user":    {[]string{"session", "c-1", "--user", "bob", "--environment", "production"}, "there is no conversation c-1 in tenant"},
		"no environment":  {[]string{"session", "c-1", "--user", "ann"}, "--environment"},
		"no conversation": {[]string{"session", "--user", "ann", "--environment", "production"}, "needs CONVERSATION"},
	} {
		o := console{reader: &fakeReader{}}.invoke(t.Context(), test.args...)
		if o.code != exitUsage || !strings.Contains(o.errOut, test.says) || o.out != "" {
			t.Errorf("%s: %+v", name, o)
		}
	}
}
