package tool

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A tool that has not begun when it is given up is kept from beginning, even if
// it was held up at the last moment; one that has begun is reported as begun.
func TestAwaitDecidesWhetherTheToolBegins(t *testing.T) {
	t.Parallel()
	for name, begun := range map[string]bool{"begun": true, "not begun": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				var start gate
				if begun && !start.begin() {
					t.Fatal("the first to come cannot begin")
				}
				o := await(ctx, make(chan outcome[Result]), &start)
				if o.begun != begun || o.err == nil || errors.Is(o.err, ErrAuthorizationUnavailable) == begun {
					t.Errorf("got %+v", o)
				}
				if start.begin() {
					t.Error("the tool begins after it was given up")
				}
			})
		})
	}
}
