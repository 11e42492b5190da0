package process

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// startTime joins the boot's ID with field 22 of /proc/PID/stat (clock ticks since boot), see proc(5).
func startTime(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return "", ErrGone
		}
		return "", fmt.Errorf("read the state of process %d: %w", pid, err)
	}
	state, ticks, err := parseStat(string(stat))
	if err != nil {
		return "", fmt.Errorf("read the state of process %d: %w", pid, err)
	}
	// In a container without an init that reaps, a killed process stays a zombie for ever: it is dead to us.
	if state == "Z" || state == "X" {
		return "", ErrGone
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot ID: %w", err)
	}
	return strings.TrimSpace(string(boot)) + ":" + ticks, nil
}

// parseStat returns fields 3 (state) and 22 (start time). The name in field 2 may itself hold spaces and parentheses.
func parseStat(stat string) (state, ticks string, err error) {
	end := strings.LastIndexByte(stat, ')')
	if end < 0 {
		return "", "", fmt.Errorf("unexpected format %q", stat)
	}
	fields := strings.Fields(stat[end+1:])
	if len(fields) < 20 {
		return "", "", fmt.Errorf("unexpected format %q", stat)
	}
	return fields[0], fields[19], nil
}

// CommandLine returns the arguments of a process joined by spaces; empty when it cannot be read.
func CommandLine(pid int) string {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.ReplaceAll(string(raw), "\x00", " "))
}
