package patient

import (
	"context"
	"net/http"

	"github.com/fairlead/fairlead/examples/opspilot/services"
)

// restartRequest asks the supervisor's loop for a restart.
type restartRequest struct {
	// caller ends when the caller no longer waits.
	caller       context.Context
	key, version string
	// answer takes one answer without blocking.
	answer chan controlAnswer
}

// controlAnswer is an HTTP answer.
type controlAnswer struct {
	status int
	body   any
}

func refuse(status int, code, message string) controlAnswer {
	return controlAnswer{status, services.Problem{Code: code, Message: message}}
}

// restart does what services.RestartPath says. An error means that the
// supervisor cannot go on.
func (s *supervisor) restart(ctx context.Context, r restartRequest) (controlAnswer, error) {
	recorded, known := s.find(r.key)
	current := s.current.Load()
	switch {
	case r.caller.Err() != nil:
		// It waited behind another one, and its caller counts on nothing any more.
		return refuse(http.StatusServiceUnavailable, services.CodeNotAccepted, "the caller has gone"), nil
	case known && recorded.FromVersion != r.version:
		return refuse(http.StatusConflict, services.CodeKeyUsed, "the key is recorded for another version"), nil
	case known && recorded.State == services.RestartDone:
		return controlAnswer{http.StatusOK, recorded}, nil
	case current.Version() != r.version:
		return refuse(http.StatusPreconditionFailed, services.CodeVersionChanged, "the service is not at this version; nothing was done"), nil
	}
	restart := services.Restart{Key: r.key, State: services.RestartBegun, FromVersion: r.version}
	if err := s.journal.record(restart); err != nil {
		return failed(), err
	}
	// How the old process ended is of no interest, only that it did.
	if err := s.service.stop(stopTimeout); err != nil && !s.service.hasExited() {
		return failed(), err
	}
	if err := s.start(ctx); err != nil {
		return failed(), err
	}
	restart, _ = s.settle(restart)
	if err := s.journal.record(restart); err != nil {
		return failed(), err
	}
	return controlAnswer{http.StatusOK, restart}, nil
}

func failed() controlAnswer {
	return refuse(http.StatusInternalServerError, services.CodeRestartFailed, "the restart was begun and not completed")
}

// find returns what is known of a key now.
func (s *supervisor) find(key string) (services.Restart, bool) {
	r, known := s.journal.find(key)
	if known {
		r, _ = s.settle(r)
	}
	return r, known
}

func (s *supervisor) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+services.RestartPath, s.serveRestart)
	mux.HandleFunc("GET "+services.RestartsPath+"{key}", s.serveFind)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A page in a browser that reaches this address by a name of its own gets
		// nowhere.
		if r.Host != s.listener.Addr().String() {
			answer(w, refuse(http.StatusForbidden, services.CodeMalformed, "unexpected host"))
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func (s *supervisor) serveRestart(w http.ResponseWriter, r *http.Request) {
	request := restartRequest{caller: r.Context(), key: r.Header.Get(services.KeyHeader), answer: make(chan controlAnswer, 1)}
	version, ok := services.ParseEntityTag(r.Header.Get(services.VersionHeader))
	if !ok || !services.ValidKey(request.key) {
		answer(w, refuse(http.StatusBadRequest, services.CodeMalformed,
			"give "+services.KeyHeader+" (64 hexadecimal digits) and "+services.VersionHeader+" (the version, in double quotes)"))
		return
	}
	request.version = version
	select {
	case s.requests <- request:
	case <-s.ended:
		answer(w, refuse(http.StatusServiceUnavailable, services.CodeNotAccepted, "the supervisor is ending; nothing was done"))
		return
	case <-r.Context().Done():
		return
	}
	select {
	case a := <-request.answer:
		answer(w, a)
	case <-r.Context().Done():
		// The restart goes on: it was begun on behalf of its key.
	}
}

func (s *supervisor) serveFind(w http.ResponseWriter, r *http.Request) {
	restart, known := s.find(r.PathValue("key"))
	switch {
	case !known:
		answer(w, refuse(http.StatusNotFound, services.CodeUnknownKey, "no restart is recorded for this key"))
	case restart.State == services.RestartBegun:
		answer(w, controlAnswer{http.StatusAccepted, restart})
	default:
		answer(w, controlAnswer{http.StatusOK, restart})
	}
}

func answer(w http.ResponseWriter, a controlAnswer) { reply(w, a.status, a.body) }
