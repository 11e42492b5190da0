//go:build !linux

package process

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// startTime asks ps, which knows the start time to the second.
func startTime(pid int) (string, error) {
	out, err := exec.Command("ps", "-o", "state=,lstart=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return "", ErrGone
		}
		return "", fmt.Errorf("read the state of process %d: %w", pid, err)
	}
	state, start, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if strings.HasPrefix(state, "Z") || start == "" {
		return "", ErrGone
	}
	return strings.TrimSpace(start), nil
}

// CommandLine returns the arguments of a process joined by spaces; empty when it cannot be read.
func CommandLine(pid int) string {
	out, err := exec.Command("ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
