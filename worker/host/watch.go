package host

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/vault"
)

const (
	// probeInterval is the time between two looks at something that works. It
	// bounds how late readiness learns of a failure.
	probeInterval = 3 * time.Second
	// probeTimeout bounds one look.
	probeTimeout = 5 * time.Second
	// retryFirst and retryMost bound the wait before looking again at something
	// that does not work.
	retryFirst = 250 * time.Millisecond
	retryMost  = 3 * time.Second
)

// backoff doubles the wait up to retryMost.
type backoff struct{ next time.Duration }

func (b *backoff) reset() { b.next = 0 }

// wait pauses; it reports false when ctx ended.
func (b *backoff) wait(ctx context.Context) bool {
	b.next = min(max(2*b.next, retryFirst), retryMost)
	return pause(ctx, b.next)
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// watchDatabase looks at the database until ctx ends, migrates it first if that
// was asked for, and closes usable when it can be used for the first time.
func (h *host) watchDatabase(ctx context.Context, usable chan<- struct{}) {
	migrated, seen := !h.migrate, false
	look := func(ctx context.Context) error {
		if !migrated {
			// A migration takes as long as it takes; it is not a probe.
			if err := migrate(ctx, h.settings.Database.URL, h.kek); err != nil {
				return err
			}
			migrated = true
			h.log.Info("the database schema is up to date", zap.Int64("version", db.SchemaVersion()))
		}
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		return h.db.Ping(ctx)
	}
	h.watch(ctx, checkDatabase, look, func() {
		if !seen {
			seen = true
			close(usable)
		}
	})
}

// watchTemporal looks at the server until ctx ends. The SDK reconnects by
// itself; this only tells people.
func (h *host) watchTemporal(ctx context.Context, c client.Client) {
	h.watch(ctx, checkTemporal, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		_, err := c.WorkflowService().GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
		return err
	}, func() {})
}

// watch calls look again and again, keeps a check of readiness, and logs when
// the check changes: once down, once up, however long it lasts.
func (h *host) watch(ctx context.Context, check string, look func(context.Context) error, passed func()) {
	var retry backoff
	for ctx.Err() == nil {
		err := look(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			h.fail(check, err)
			retry.wait(ctx)
		default:
			h.pass(check)
			passed()
			retry.reset()
			pause(ctx, probeInterval)
		}
	}
}

func (h *host) fail(check string, err error) {
	if h.readiness.Fail(check, reason(err)) {
		h.log.Warn("check failed, trying again until it passes", zap.String("check", check), zap.String("reason", reason(err)), zap.NamedError("cause", vault.Cause(err)))
	}
}

func (h *host) pass(check string) {
	if h.readiness.Pass(check) {
		h.log.Info("check passed", zap.String("check", check))
	}
}

// reason is the text of an error in a form that stays the same while its cause
// does, so that a lasting failure is logged once. /readyz shows it to whoever
// can reach the port, so it holds no address.
func reason(err error) string {
	var (
		schema      *db.SchemaError
		unavailable *serviceerror.Unavailable
		timedOut    *serviceerror.DeadlineExceeded
		denied      *serviceerror.PermissionDenied
		namespace   *serviceerror.NamespaceNotFound
	)
	switch {
	case errors.As(err, &schema):
		return schema.Error() + " (worker migrate, or worker run --migrate)"
	case errors.Is(err, db.ErrUnavailable):
		return "the database cannot be reached"
	case errors.Is(err, vault.ErrWrapped):
		return vault.ErrWrapped.Error()
	case errors.As(err, &unavailable), errors.As(err, &timedOut), errors.Is(err, context.DeadlineExceeded):
		return "the Temporal server cannot be reached"
	case errors.As(err, &denied):
		return "the Temporal server denies access: check TEMPORAL_API_KEY or the TLS certificate"
	case errors.As(err, &namespace):
		return "the Temporal namespace does not exist: create it, or check TEMPORAL_NAMESPACE"
	}
	return err.Error()
}
