// Package process tells a process from a later one that got the same PID, ends processes it is given, and checks ports.
// Nothing is ever signalled whose identity was not recorded when it was started.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// Identity names one process for good: a PID alone is reused by the kernel, so the start time goes with it.
type Identity struct {
	PID int `json:"pid"`
	// Start is opaque: equal strings mean the same process. It differs between boots.
	Start string `json:"start"`
}

// ErrGone means that no such process runs (any more).
var ErrGone = errors.New("process is gone")

// Identify returns the identity of a running process; ErrGone when there is none, or only a zombie.
func Identify(pid int) (Identity, error) {
	if pid <= 0 {
		return Identity{}, ErrGone
	}
	start, err := startTime(pid)
	if err != nil {
		return Identity{}, err
	}
	return Identity{PID: pid, Start: start}, nil
}

// Alive reports whether this very process still runs. The zero Identity is not alive.
func (id Identity) Alive() bool {
	if id.PID <= 0 || id.Start == "" {
		return false
	}
	now, err := Identify(id.PID)
	return err == nil && now.Start == id.Start
}

// Signal sends a signal to this very process, and ErrGone when it has ended.
func (id Identity) Signal(sig syscall.Signal) error {
	if !id.Alive() {
		return ErrGone
	}
	if err := syscall.Kill(id.PID, sig); err != nil {
		if errors.Is(err, syscall.ESRCH) {
			return ErrGone
		}
		if errors.Is(err, syscall.EPERM) {
			return fmt.Errorf("process %d belongs to another user: run this command as the user who ran `up`: %w", id.PID, err)
		}
		return fmt.Errorf("signal %v to process %d: %w", sig, id.PID, err)
	}
	return nil
}

// WaitGone waits until the process has ended and reports whether it did within the time.
func (id Identity) WaitGone(ctx context.Context, within time.Duration) bool {
	deadline := time.Now().Add(within)
	for id.Alive() {
		if time.Now().After(deadline) || ctx.Err() != nil {
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
	return true
}

// Step is one signal and how long the process may take to obey it.
type Step struct {
	Signal syscall.Signal
	Within time.Duration
}

// End sends the signals one after the other until the process has ended.
func (id Identity) End(ctx context.Context, steps ...Step) error {
	for _, step := range steps {
		if err := id.Signal(step.Signal); errors.Is(err, ErrGone) {
			return nil
		} else if err != nil {
			return err
		}
		if id.WaitGone(ctx, step.Within) {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return fmt.Errorf("process %d does not end; look at it with `ps -p %d -f` and run this command again", id.PID, id.PID)
}

// Self is the identity of the running program.
func Self() (Identity, error) { return Identify(os.Getpid()) }
