package patient

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fairlead/fairlead/examples/opspilot/services"
)

var errPoolTimeout = errors.New("pool: no free connection in time")

// pool is a bounded set of connections to the bank.
type pool struct {
	address string
	size    int
	idle    chan *bankConn

	mu     sync.Mutex
	leases map[*bankConn]lease
}

// lease is a connection in use. The context is that of the HTTP request, which
// net/http cancels when the request is over: a lease that outlives its request
// is a leak.
type lease struct {
	request context.Context
	since   time.Time
}

func openPool(address string, size int) (*pool, error) {
	p := &pool{address: address, size: size, idle: make(chan *bankConn, size), leases: map[*bankConn]lease{}}
	for range size {
		conn, err := dialBank(address)
		if err != nil {
			p.close()
			return nil, err
		}
		p.idle <- conn
	}
	return p, nil
}

// acquire waits for a connection until timeout and then returns errPoolTimeout.
func (p *pool) acquire(request context.Context, timeout time.Duration) (*bankConn, error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case conn := <-p.idle:
		p.mu.Lock()
		p.leases[conn] = lease{request: request, since: time.Now()}
		p.mu.Unlock()
		return conn, nil
	case <-timer.C:
		return nil, errPoolTimeout
	case <-request.Done():
		return nil, context.Cause(request)
	}
}

// release gives a connection back.
func (p *pool) release(conn *bankConn) {
	p.mu.Lock()
	delete(p.leases, conn)
	p.mu.Unlock()
	p.idle <- conn
}

// replace gives a fresh connection back for one in an unknown state: a late
// answer on it would be taken for the answer to the next charge.
func (p *pool) replace(conn *bankConn) error {
	conn.net.Close()
	fresh, err := dialBank(p.address)
	if err != nil {
		return err
	}
	p.mu.Lock()
	delete(p.leases, conn)
	p.mu.Unlock()
	p.idle <- fresh
	return nil
}

func (p *pool) inUse() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.leases)
}

func (p *pool) status() services.Pool {
	p.mu.Lock()
	defer p.mu.Unlock()
	status := services.Pool{Size: p.size, InUse: len(p.leases)}
	for _, lease := range p.leases {
		status.LongestUseMillis = max(status.LongestUseMillis, time.Since(lease.since).Milliseconds())
		if lease.request.Err() != nil {
			status.LeakedConnections++
		}
	}
	status.LeakedBytes = int64(status.LeakedConnections) * connBufferBytes
	return status
}

// close ends every connection, leaked ones included. No acquire may follow.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.leases {
		conn.net.Close()
	}
	for {
		select {
		case conn := <-p.idle:
			conn.net.Close()
		default:
			return
		}
	}
}
