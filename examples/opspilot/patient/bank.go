package patient

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

const (
	bankLatency = 2 * time.Millisecond
	// silentEvery: during the incident the bank leaves one in so many charges
	// without an answer.
	silentEvery = 3
)

// bank is the system that payments depend on: it takes one charge per line and
// answers each with OK.
type bank struct {
	listener      net.Listener
	incidentUntil time.Time
	incidentFile  string

	mu    sync.Mutex
	seen  int
	conns map[net.Conn]struct{}
	done  sync.WaitGroup
}

func openBank(incidentUntil time.Time, incidentFile string) (*bank, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open bank: %w", err)
	}
	b := &bank{listener: listener, incidentUntil: incidentUntil, incidentFile: incidentFile, conns: map[net.Conn]struct{}{}}
	b.done.Go(b.accept)
	return b, nil
}

func (b *bank) accept() {
	for {
		conn, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.mu.Lock()
		b.conns[conn] = struct{}{}
		b.mu.Unlock()
		b.done.Go(func() { b.serve(conn) })
	}
}

func (b *bank) serve(conn net.Conn) {
	defer func() {
		conn.Close()
		b.mu.Lock()
		delete(b.conns, conn)
		b.mu.Unlock()
	}()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		if b.silent() {
			continue
		}
		time.Sleep(bankLatency)
		if _, err := conn.Write([]byte("OK\n")); err != nil {
			return
		}
	}
}

func (b *bank) silent() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen++
	return b.seen%silentEvery == 0 && b.incident()
}

func (b *bank) incident() bool {
	if !time.Now().Before(b.incidentUntil) {
		return false
	}
	if b.incidentFile == "" {
		return true
	}
	_, err := os.Stat(b.incidentFile)
	return err == nil
}

// close ends all connections and waits for their goroutines.
func (b *bank) close() {
	b.listener.Close()
	b.mu.Lock()
	for conn := range b.conns {
		conn.Close()
	}
	b.mu.Unlock()
	b.done.Wait()
}

// bankConn is one connection of the pool, with its own buffer.
type bankConn struct {
	net  net.Conn
	read *bufio.Reader
}

// connBufferBytes is what each connection of the pool holds in memory.
const connBufferBytes = 64 << 10

var errBankTimeout = errors.New("bank: no answer in time")

func dialBank(address string) (*bankConn, error) {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return nil, fmt.Errorf("connect to bank: %w", err)
	}
	return &bankConn{net: conn, read: bufio.NewReaderSize(conn, connBufferBytes)}, nil
}

func (c *bankConn) charge(order string, cents int64, timeout time.Duration) error {
	if err := c.net.SetDeadline(time.Now().Add(timeout)); err != nil {
		return fmt.Errorf("charge: %w", err)
	}
	if _, err := fmt.Fprintf(c.net, "CHARGE %s %d\n", order, cents); err != nil {
		return fmt.Errorf("charge: %w", err)
	}
	answer, err := c.read.ReadString('\n')
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errBankTimeout
	case err != nil:
		return fmt.Errorf("charge: %w", err)
	case answer != "OK\n":
		return errors.New("charge: the bank refused")
	}
	return nil
}
