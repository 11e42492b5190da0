// Package tickets is a small ticket service over HTTP: what the tool open_ticket
// writes to. Each ticket is opened under the caller's idempotency key, once.
//
// For tests it misbehaves as it is told to (see Fault), as real systems do
// without being told: it does not answer, answers too late, or answers no one.
// It imports the standard library and package journal.
package tickets

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/examples/opspilot/journal"
)

// Request is what a ticket is opened with.
type Request struct {
	Environment string   `json:"environment"`
	ServiceID   string   `json:"service_id"`
	Title       string   `json:"title"`
	Details     string   `json:"details"`
	Severity    Severity `json:"severity"`
	// Reporter is on whose behalf it is opened.
	Reporter string `json:"reporter"`
}

// Severity says how urgent a ticket is.
type Severity string

// The closed set of severities.
const (
	Low      Severity = "low"
	Medium   Severity = "medium"
	High     Severity = "high"
	Critical Severity = "critical"
)

// Severities returns every severity, the least urgent first.
func Severities() []Severity { return []Severity{Low, Medium, High, Critical} }

// Ticket is an open ticket.
type Ticket struct {
	ID       string    `json:"ticket_id"`
	Key      string    `json:"key"`
	OpenedAt time.Time `json:"opened_at"`
	Request
}

// Limits of a Request, in bytes.
const (
	MaxTitleBytes   = 480
	MaxDetailsBytes = 8 << 10
	maxNameBytes    = 200
)

var keyPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

func (r Request) validate() error {
	for name, field := range map[string]struct {
		text  string
		limit int
	}{
		"environment": {r.Environment, maxNameBytes}, "service_id": {r.ServiceID, maxNameBytes}, "reporter": {r.Reporter, maxNameBytes},
		"title": {r.Title, MaxTitleBytes}, "details": {r.Details, MaxDetailsBytes},
	} {
		if field.text == "" || len(field.text) > field.limit || !utf8.ValidString(field.text) {
			return fmt.Errorf("%s must be 1 to %d bytes of UTF-8", name, field.limit)
		}
	}
	if !slices.Contains(Severities(), r.Severity) {
		return errors.New("severity must be low, medium, high or critical")
	}
	return nil
}

// Service is the ticket service, an http.Handler (see TicketsPath). It is safe for
// concurrent use.
type Service struct {
	// released ends requests that hang.
	released  chan struct{}
	releasing sync.Once

	mu      sync.Mutex
	file    *journal.File // nil without a file
	tickets []Ticket
	// byKey holds positions in tickets.
	byKey map[string]int

	faults faults
}

// Open returns a service that keeps its tickets in the file at path, where it
// also finds those of an earlier life. With an empty path they are kept in
// memory. Close it.
func Open(path string) (*Service, error) {
	s := &Service{released: make(chan struct{}), byKey: map[string]int{}}
	if path == "" {
		return s, nil
	}
	file, err := journal.Open(path, func(line []byte) error {
		var ticket Ticket
		if json.Unmarshal(line, &ticket) != nil || !keyPattern.MatchString(ticket.Key) {
			return errors.New("this is no ticket")
		}
		s.add(ticket)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("open tickets: %w", err)
	}
	s.file = file
	return s, nil
}

// Close ends requests that hang and closes the file. No request may follow.
func (s *Service) Close() error {
	s.release()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

func (s *Service) release() { s.releasing.Do(func() { close(s.released) }) }

func (s *Service) add(ticket Ticket) {
	s.byKey[ticket.Key] = len(s.tickets)
	s.tickets = append(s.tickets, ticket)
}

// errKeyUsed says that the key belongs to another request.
var errKeyUsed = errors.New("the key was used for another request")

// open returns the ticket of the key, which it opens if there is none.
func (s *Service) open(key string, request Request) (ticket Ticket, opened bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, found := s.byKey[key]; found {
		if s.tickets[i].Request != request {
			return Ticket{}, false, errKeyUsed
		}
		return s.tickets[i], false, nil
	}
	ticket = Ticket{
		ID: fmt.Sprintf("T-%d", len(s.tickets)+1), Key: key, OpenedAt: time.Now().UTC().Truncate(time.Millisecond), Request: request,
	}
	if s.file != nil {
		if err := s.file.Append(ticket); err != nil {
			return Ticket{}, false, err
		}
	}
	s.add(ticket)
	return ticket, true, nil
}

func (s *Service) find(key string) (Ticket, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, found := s.byKey[key]
	if !found {
		return Ticket{}, false
	}
	return s.tickets[i], true
}

// Tickets returns all tickets in the order in which they were opened.
func (s *Service) Tickets() []Ticket {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tickets)
}

// Effects counts tickets by key. It counts the tickets there are and not the
// keys, so that a service or caller that opens one twice is found out.
func (s *Service) Effects() map[string]int {
	effects := map[string]int{}
	for _, ticket := range s.Tickets() {
		effects[ticket.Key]++
	}
	return effects
}
