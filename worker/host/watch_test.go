package host

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tink-crypto/tink-go/v2/tink"
	"go.temporal.io/api/serviceerror"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/telemetry"
	"github.com/fairlead/fairlead/internal/vault"
)

func TestWatchSaysEachChangeOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		h := &host{log: zap.New(core), readiness: telemetry.NewReadiness(checkDatabase)}
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		outcome, looks, passes := db.ErrUnavailable, 0, 0
		set := func(err error) {
			mu.Lock()
			defer mu.Unlock()
			outcome = err
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			h.watch(ctx, checkDatabase, func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				looks++
				return outcome
			}, func() { passes++ })
		}()

		time.Sleep(time.Minute)
		if report := h.readiness.Report(); report.Ready || !strings.Contains(report.Checks[checkDatabase].Reason, "cannot be reached") {
			t.Errorf("while it is down: %+v", report)
		}
		set(&db.SchemaError{Have: 0, Need: 1})
		time.Sleep(time.Minute)
		if reason := h.readiness.Report().Checks[checkDatabase].Reason; !strings.Contains(reason, "worker migrate") {
			t.Errorf("an old schema is not explained: %q", reason)
		}
		set(nil)
		time.Sleep(time.Minute)
		if !h.readiness.Report().Ready {
			t.Error("not ready although it works")
		}
		set(db.ErrUnavailable)
		time.Sleep(time.Minute)
		if h.readiness.Report().Ready {
			t.Error("ready although it is down again")
		}
		cancel()
		<-done

		var messages []string
		for _, entry := range logs.All() {
			messages = append(messages, entry.Level.String()+" "+entry.Message)
		}
		want := "warn check failed, trying again until it passes, warn check failed, trying again until it passes, info check passed, warn check failed, trying again until it passes"
		if got := strings.Join(messages, ", "); got != want {
			t.Errorf("the log says %q, want %q", got, want)
		}
		// 4 minutes at 3 s between two looks, a few more at first.
		if looks < 75 || looks > 90 || passes < 18 || passes > 22 {
			t.Errorf("looked %d times, passed %d", looks, passes)
		}
	})
}

// lostKMS is a KMS that cannot be reached.
type lostKMS struct{ tink.AEAD }

func (lostKMS) Encrypt(_, _ []byte) ([]byte, error) {
	return nil, fmt.Errorf("dial tcp 10.0.0.7:443: %w", context.DeadlineExceeded)
}

func TestReasonsAreStable(t *testing.T) {
	t.Parallel()
	_, _, unwrapped := vault.New(lostKMS{}).Make(vault.Owner{Tenant: "acme", Subject: "ann"})
	for _, test := range []struct {
		err  error
		want string
	}{
		{serviceerror.NewUnavailable("dial tcp 10.0.0.7:7233: refused"), "the Temporal server cannot be reached"},
		{context.DeadlineExceeded, "the Temporal server cannot be reached"},
		{serviceerror.NewPermissionDenied("nope", ""), "denies access"},
		{serviceerror.NewNamespaceNotFound("ops"), "TEMPORAL_NAMESPACE"},
		{fmt.Errorf("open keys: %w", unwrapped), "cannot be wrapped or unwrapped: the KMS fails"},
		{errors.New("something else"), "something else"},
	} {
		if got := reason(test.err); !strings.Contains(got, test.want) || strings.Contains(got, "10.0.0.7") {
			t.Errorf("%v: %q", test.err, got)
		}
	}
	if got := reason(fmt.Errorf("keys of acme: %w", unwrapped)); got != vault.ErrWrapped.Error() {
		t.Errorf("keys that cannot be unwrapped: %q", got)
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b backoff
		began := time.Now()
		for range 6 {
			b.wait(t.Context())
		}
		if took, want := time.Since(began), 250*time.Millisecond+500*time.Millisecond+time.Second+2*time.Second+2*3*time.Second; took != want {
			t.Errorf("six waits took %s, want %s", took, want)
		}
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		if b.wait(canceled) {
			t.Error("waited although the context had ended")
		}
	})
}
