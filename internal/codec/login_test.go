package codec

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/config"
)

const ui = "http://127.0.0.1:8233"

func asked(t *testing.T, secret string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:8234/decode", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Origin", ui)
	r.AddCookie(&http.Cookie{Name: cookieName, Value: secret})
	return r
}

func TestSessionsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDoor([]config.Operator{{Name: "olga", Tenant: "acme", Token: config.Secret(strings.Repeat("x", 32))}})
		operator, ok := d.byToken(strings.Repeat("x", 32))
		if !ok || operator != (config.Operator{Name: "olga", Tenant: "acme"}) {
			t.Fatalf("%+v, %v", operator, ok)
		}
		secret := d.open(operator)
		time.Sleep(sessionTime - time.Second)
		if got, ok := d.admit(asked(t, secret), ui); !ok || got != operator {
			t.Errorf("before its end: %+v, %v", got, ok)
		}
		time.Sleep(2 * time.Second)
		if _, ok := d.admit(asked(t, secret), ui); ok {
			t.Error("after its end")
		}
		d.open(operator)
		if len(d.sessions) != 1 {
			t.Errorf("%d sessions are remembered, want the one that goes on", len(d.sessions))
		}
	})
}

func TestOldestSessionGoesFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDoor(nil)
		var secrets []string
		for range maxSessions + 1 {
			secrets = append(secrets, d.open(config.Operator{Name: "olga"}))
			time.Sleep(time.Second)
		}
		if len(d.sessions) != maxSessions {
			t.Errorf("%d sessions, want %d", len(d.sessions), maxSessions)
		}
		for i, want := range map[int]bool{0: false, 1: true, maxSessions: true} {
			if _, ok := d.admit(asked(t, secrets[i]), ui); ok != want {
				t.Errorf("session %d is remembered: %v, want %v", i, ok, want)
			}
		}
	})
}
