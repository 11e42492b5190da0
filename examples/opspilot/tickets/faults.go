package tickets

import (
	"fmt"
	"slices"
	"sync"
)

// Fault is what goes wrong with one request.
type Fault string

// The closed set of faults. A request that hangs does so until its caller goes
// or the service is closed.
const (
	FaultNone Fault = "none"
	// FaultRefuse answers 503, CodeNotAccepted, and does nothing.
	FaultRefuse Fault = "refuse"
	// FaultHangBefore hangs and never does the work.
	FaultHangBefore Fault = "hang_before"
	// FaultHangAfter does the work and then hangs.
	FaultHangAfter Fault = "hang_after"
	// FaultDropBefore ends the connection without an answer and without work.
	FaultDropBefore Fault = "drop_before"
	// FaultDropAfter does the work and ends the connection without an answer.
	FaultDropAfter Fault = "drop_after"
)

func (f Fault) validate() error {
	if !slices.Contains([]Fault{FaultNone, FaultRefuse, FaultHangBefore, FaultHangAfter, FaultDropBefore, FaultDropAfter}, f) {
		return fmt.Errorf("there is no fault %q", string(f))
	}
	return nil
}

// faults are those of the requests to come, in order; requests beyond them go
// well.
type faults struct {
	mu             sync.Mutex
	opens, lookUps []Fault
}

// FailOpens adds faults for the next requests to open a ticket, one each.
// FaultNone lets one go well. It panics on a Fault that does not exist.
func (s *Service) FailOpens(more ...Fault) { s.faults.add(more, nil) }

// FailLookUps does the same for the next look-ups of a key.
func (s *Service) FailLookUps(more ...Fault) { s.faults.add(nil, more) }

func (f *faults) add(opens, lookUps []Fault) {
	for _, fault := range slices.Concat(opens, lookUps) {
		if err := fault.validate(); err != nil {
			panic("tickets: " + err.Error())
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opens = append(f.opens, opens...)
	f.lookUps = append(f.lookUps, lookUps...)
}

func (f *faults) nextOpen() Fault   { return f.take(&f.opens) }
func (f *faults) nextLookUp() Fault { return f.take(&f.lookUps) }

func (f *faults) take(queue *[]Fault) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(*queue) == 0 {
		return FaultNone
	}
	fault := (*queue)[0]
	*queue = (*queue)[1:]
	return fault
}
