package process

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"time"
)

const loopback = "127.0.0.1"

// Address is host:port on the loopback interface, the only one anything here listens on.
func Address(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }

// Port is one port that must be free, with the names that change it.
type Port struct {
	Number int
	For    string // what will listen there, "PostgreSQL"
	Flag   string // "--pg-port"
	Env    string // "FAIRLEAD_DEV_PG_PORT"
}

// CheckFree returns an error that says which port is taken and how to choose another one.
func CheckFree(p Port) error {
	listener, err := net.Listen("tcp", Address(p.Number))
	if err == nil {
		_ = listener.Close()
		// Some systems let a socket bind beside one that listens on all addresses; connections tell.
		conn, dialErr := net.DialTimeout("tcp", Address(p.Number), 200*time.Millisecond)
		if dialErr != nil {
			return nil
		}
		_ = conn.Close()
		err = fmt.Errorf("something answers there")
	}
	return fmt.Errorf("port %d, wanted for %s, is taken (%w): end the program that listens on it, or choose another port with %s N or %s=N",
		p.Number, p.For, err, p.Flag, p.Env)
}

// FreePorts finds n distinct free ports. They lie below the range from which kernels take ports for outgoing
// connections, so that none of those grabs one between this check and the server's own listen.
func FreePorts(n int) ([]int, error) {
	const low, high = 20000, 30000
	var ports []int
	seen := map[int]bool{}
	for range 2000 {
		port := low + rand.IntN(high-low)
		if seen[port] {
			continue
		}
		seen[port] = true
		listener, err := net.Listen("tcp", Address(port))
		if err != nil {
			continue
		}
		_ = listener.Close()
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("no %d free ports between %d and %d on %s: end programs that listen there", n, low, high, loopback)
}
