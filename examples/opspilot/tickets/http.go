package tickets

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
)

// Paths of the service.
const (
	// TicketsPath takes a POST with KeyHeader and a Request: 201 and the Ticket,
	// 200 and the same Ticket for the same key and request again, 409 with
	// CodeKeyUsed for the same key and another request, 400 or 503 with
	// CodeMalformed or CodeNotAccepted when nothing was and will be done. After
	// any other answer, or none, look the key up. GET lists all tickets.
	TicketsPath = "/v1/tickets"
	// ByKeyPath with a key behind it is the look-up: 200 and the Ticket, or 404
	// with CodeUnknownKey.
	ByKeyPath = "/v1/tickets/by-key/"
	// FaultsPath takes a POST with FaultPlan, if Config.Faults allows it.
	FaultsPath = "/faults"

	// KeyHeader is the caller's idempotency key, 64 hexadecimal digits.
	KeyHeader = "Idempotency-Key"
)

// The closed set of codes in the body of an unsuccessful answer.
const (
	CodeMalformed   = "malformed"
	CodeKeyUsed     = "key_used"
	CodeUnknownKey  = "unknown_key"
	CodeNotAccepted = "not_accepted"
	CodeInternal    = "internal"
)

// FaultPlan is the body of a request to FaultsPath: what FailOpens and
// FailLookUps are given.
type FaultPlan struct {
	Opens   []Fault `json:"opens"`
	LookUps []Fault `json:"look_ups"`
}

const maxBodyBytes = 64 << 10

// ServeHTTP implements http.Handler for TicketsPath and ByKeyPath.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.routes().ServeHTTP(w, r) }

func (s *Service) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+TicketsPath, s.serveOpen)
	mux.HandleFunc("GET "+TicketsPath, func(w http.ResponseWriter, _ *http.Request) {
		respond(w, http.StatusOK, map[string][]Ticket{"tickets": append([]Ticket{}, s.Tickets()...)})
	})
	mux.HandleFunc("GET "+ByKeyPath+"{key}", s.serveFind)
	return mux
}

func (s *Service) serveOpen(w http.ResponseWriter, r *http.Request) {
	var request Request
	key := r.Header.Get(KeyHeader)
	err := readBody(w, r, &request)
	if err == nil {
		err = request.validate()
	}
	if err == nil && !keyPattern.MatchString(key) {
		err = errors.New(KeyHeader + " must be 64 hexadecimal digits")
	}
	if err != nil {
		problem(w, http.StatusBadRequest, CodeMalformed, err.Error())
		return
	}
	fault := s.faults.nextOpen()
	if s.failsBefore(w, r, fault) {
		return
	}
	if r.Context().Err() != nil {
		return // the caller has gone and counts on nothing any more
	}
	ticket, opened, err := s.open(key, request)
	s.failAfter(r, fault)
	switch {
	case errors.Is(err, errKeyUsed):
		problem(w, http.StatusConflict, CodeKeyUsed, err.Error())
	case err != nil:
		problem(w, http.StatusInternalServerError, CodeInternal, "the ticket could not be stored")
	case opened:
		respond(w, http.StatusCreated, ticket)
	default:
		respond(w, http.StatusOK, ticket)
	}
}

func (s *Service) serveFind(w http.ResponseWriter, r *http.Request) {
	fault := s.faults.nextLookUp()
	if s.failsBefore(w, r, fault) {
		return
	}
	s.failAfter(r, fault)
	ticket, found := s.find(r.PathValue("key"))
	if !found {
		problem(w, http.StatusNotFound, CodeUnknownKey, "no ticket was opened with this key")
		return
	}
	respond(w, http.StatusOK, ticket)
}

// failsBefore carries out a fault that comes before the work, and reports
// whether the request has been answered.
func (s *Service) failsBefore(w http.ResponseWriter, r *http.Request, fault Fault) bool {
	switch fault {
	case FaultRefuse:
		problem(w, http.StatusServiceUnavailable, CodeNotAccepted, "nothing is accepted now")
		return true
	case FaultHangBefore:
		s.hang(r)
	case FaultDropBefore:
		panic(http.ErrAbortHandler)
	}
	return false
}

// failAfter carries out a fault that comes after the work.
func (s *Service) failAfter(r *http.Request, fault Fault) {
	switch fault {
	case FaultHangAfter:
		s.hang(r)
	case FaultDropAfter:
		panic(http.ErrAbortHandler)
	}
}

// hang does not return, so that nothing is answered in the end.
func (s *Service) hang(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-s.released:
	}
	panic(http.ErrAbortHandler)
}

func (s *Service) serveFaults(w http.ResponseWriter, r *http.Request) {
	var plan FaultPlan
	err := readBody(w, r, &plan)
	for _, fault := range append(plan.Opens, plan.LookUps...) {
		err = errors.Join(err, fault.validate())
	}
	if err != nil {
		problem(w, http.StatusBadRequest, CodeMalformed, err.Error())
		return
	}
	s.faults.add(plan.Opens, plan.LookUps)
	w.WriteHeader(http.StatusNoContent)
}

func readBody(w http.ResponseWriter, r *http.Request, into any) error {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}

func problem(w http.ResponseWriter, status int, code, message string) {
	respond(w, status, map[string]string{"code": code, "message": message})
}

func respond(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"code":"internal"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// Nobody is left to tell when the caller has gone.
	_, _ = w.Write(append(text, '\n'))
}
