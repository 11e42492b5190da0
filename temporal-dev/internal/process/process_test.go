package process

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestIdentityTellsAProcessFromALaterOneWithItsPID(t *testing.T) {
	t.Parallel()
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	if !self.Alive() {
		t.Error("this process is not alive")
	}
	recycled := Identity{PID: self.PID, Start: self.Start + "1"}
	if recycled.Alive() {
		t.Error("a process with another start time counts as the same")
	}
	// If this signal were sent, the test would die of it.
	if err := recycled.Signal(syscall.SIGKILL); !errors.Is(err, ErrGone) {
		t.Errorf("signal to a recycled PID: got %v, want ErrGone", err)
	}
	if (Identity{}).Alive() || (Identity{PID: self.PID}).Alive() {
		t.Error("an identity without start time is alive")
	}
}

func TestIdentifyTakesAZombieForGone(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := id.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// Not waited for, so it stays in the process table as a zombie.
	if !id.WaitGone(t.Context(), 5*time.Second) {
		t.Error("a zombie counts as alive")
	}
	_ = cmd.Wait()
	if _, err := Identify(cmd.Process.Pid); !errors.Is(err, ErrGone) {
		t.Errorf("got %v, want ErrGone", err)
	}
}

func TestEndGoesFromSignalToSignal(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	id, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	err = id.End(t.Context(), Step{syscall.SIGTERM, 200 * time.Millisecond}, Step{syscall.SIGKILL, 5 * time.Second})
	if err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
		t.Errorf("ended by %v, want SIGKILL after the ignored SIGTERM", status.Signal())
	}
	if err := id.End(context.Background(), Step{syscall.SIGTERM, time.Second}); err != nil {
		t.Errorf("ending a process that is gone: %v", err)
	}
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	if got := CommandLine(os.Getpid()); !strings.Contains(got, os.Args[0]) {
		t.Errorf("got %q, want it to contain %q", got, os.Args[0])
	}
}

// Not parallel: a process that another test forks holds the listener open until it execs.
func TestCheckFree(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "0.0.0.0:0"} {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		port := Port{Number: listener.Addr().(*net.TCPAddr).Port, For: "the Web UI", Flag: "--ui-port", Env: "FAIRLEAD_DEV_UI_PORT"}
		err = CheckFree(port)
		if err == nil {
			t.Fatalf("a port that listens on %s counts as free", address)
		}
		_, number, _ := net.SplitHostPort(listener.Addr().String())
		for _, want := range []string{number, "the Web UI", "--ui-port", "FAIRLEAD_DEV_UI_PORT"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error %q does not name %q", err, want)
			}
		}
		_ = listener.Close()
		if err := CheckFree(port); err != nil {
			t.Errorf("after closing: %v", err)
		}
	}
}

func TestFreePortsAreDistinctAndFree(t *testing.T) {
	t.Parallel()
	ports, err := FreePorts(3)
	if err != nil {
		t.Fatal(err)
	}
	if len(ports) != 3 || ports[0] == ports[1] || ports[1] == ports[2] || ports[0] == ports[2] {
		t.Errorf("got %v, want three different ports", ports)
	}
}
