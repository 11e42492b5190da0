package main

import (
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/examples/opspilot"
	"github.com/fairlead/fairlead/examples/opspilot/tickets"
)

// writeID names a write as the storm knows it.
type writeID struct {
	run, call string
}

// desk is the ticket service. It outlives the workers and counts tickets for
// itself. Each write has a tickets.Service of its own with the faults that are
// planned for it, chosen by its key, so that the same seed gives a write the same
// faults whatever the others do. A key of no planned write goes to a service
// that nobody should ever reach.
type desk struct {
	url    string
	server *http.Server
	byKey  map[string]*tickets.Service
	stray  *tickets.Service
	// slow is the time before and after the work of an opening, in which
	// workers die.
	slow time.Duration

	mu sync.Mutex
	// ambush is told of the next opening that reaches its aim.
	ambush    func()
	ambushAim aim
}

// keyOf is the key under which a write has to arrive.
func keyOf(w writeID) string {
	return activities.IdempotencyKey(tenant, w.run, w.call, opspilot.OpenTicket, ticketToolVersion)
}

func openDesk(writes map[writeID]writePlan) (*desk, error) {
	d := &desk{byKey: map[string]*tickets.Service{}, slow: 60 * time.Millisecond}
	for id, w := range writes {
		service, err := tickets.Open("")
		if err != nil {
			return nil, err
		}
		service.FailOpens(w.opens...)
		service.FailLookUps(w.lookUps...)
		d.byKey[keyOf(id)] = service
	}
	var err error
	if d.stray, err = tickets.Open(""); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d.url = "http://" + listener.Addr().String()
	d.server = &http.Server{Handler: d, ReadHeaderTimeout: time.Second, ErrorLog: silentLog}
	go func() { _ = d.server.Serve(listener) }()
	return d, nil
}

func (d *desk) close() {
	for _, service := range d.byKey {
		_ = service.Close()
	}
	_ = d.stray.Close()
	_ = d.server.Close()
}

// ServeHTTP passes a request on to the service of its key.
func (d *desk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, lookUp := strings.CutPrefix(r.URL.Path, tickets.ByKeyPath)
	if !lookUp {
		key = r.Header.Get(tickets.KeyHeader)
	}
	service := d.byKey[key]
	if service == nil {
		service = d.stray
	}
	if lookUp {
		service.ServeHTTP(w, r)
		return
	}
	time.Sleep(d.slow)
	d.reached(beforeEffect)
	// The answer is held back until it is known whether somebody dies now.
	service.ServeHTTP(&held{ResponseWriter: w, release: func() {
		time.Sleep(d.slow)
		d.reached(afterEffect)
	}}, r)
}

// held calls release once, before the first byte of the answer.
type held struct {
	http.ResponseWriter
	release func()
}

func (h *held) WriteHeader(status int) {
	if h.release != nil {
		h.release()
		h.release = nil
	}
	h.ResponseWriter.WriteHeader(status)
}

// arm has kill called when the next opening reaches the aim.
func (d *desk) arm(at aim, kill func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ambush, d.ambushAim = kill, at
}

// disarm returns the kill that was armed and met no opening, or nil.
func (d *desk) disarm() func() {
	d.mu.Lock()
	defer d.mu.Unlock()
	kill := d.ambush
	d.ambush = nil
	return kill
}

func (d *desk) reached(at aim) {
	d.mu.Lock()
	kill := d.ambush
	if kill == nil || d.ambushAim != at {
		d.mu.Unlock()
		return
	}
	d.ambush = nil
	d.mu.Unlock()
	kill()
}

// effects counts tickets by key, those under unplanned keys as well.
func (d *desk) effects() map[string]int {
	all := d.stray.Effects()
	for _, service := range d.byKey {
		for key, n := range service.Effects() {
			all[key] += n
		}
	}
	return all
}

// titles counts tickets by title, which names the write: a second ticket under
// another key is found out.
func (d *desk) titles() map[string]int {
	all := map[string]int{}
	count := func(s *tickets.Service) {
		for _, ticket := range s.Tickets() {
			all[ticket.Title]++
		}
	}
	for _, service := range d.byKey {
		count(service)
	}
	count(d.stray)
	return all
}
