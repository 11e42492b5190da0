package main

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/examples/opspilot/patient"
	"github.com/fairlead/fairlead/examples/opspilot/policies"
)

const (
	workerReadyIn = 60 * time.Second
	workerEndsIn  = 30 * time.Second
	cancelIn      = 15 * time.Second
	taskQueue     = "fairlead-demo"
)

// newKeyPair makes an approval key, in the form that package approval documents:
// the seed and the public key of Ed25519 in base64. `starter approval-key` makes
// one for people.
func newKeyPair() (private, public string, err error) {
	publicKey, privateKey, err := ed25519.GenerateKey(nil)
	if err != nil {
		return "", "", err
	}
	return base64.StdEncoding.EncodeToString(privateKey.Seed()), base64.StdEncoding.EncodeToString(publicKey), nil
}

func (s stage) policies() string { return filepath.Join(s.dir, "policies") }

func (s stage) writePolicies() error { return os.CopyFS(s.policies(), policies.Files) }

// environment gives the demo a task queue of its own, so that a worker that
// somebody else left running does not answer in its place, and its own policies.
// Keys of another approver are kept out.
func (s stage) environment(more ...string) []string {
	own := slices.DeleteFunc(os.Environ(), func(variable string) bool { return strings.HasPrefix(variable, "FAIRLEAD_APPROVAL_") })
	return append(append(own, "FAIRLEAD_TASK_QUEUE="+taskQueue, "FAIRLEAD_POLICIES="+s.policies()), more...)
}

// starter runs the starter to its end and returns its exit code.
func (s stage) starter(ctx context.Context, arguments ...string) int {
	starter := exec.CommandContext(ctx, filepath.Join(s.bin, "starter"), arguments...)
	starter.Env = s.environment()
	starter.Stdout, starter.Stderr = os.Stdout, os.Stderr
	starter.Cancel = func() error { return starter.Process.Signal(os.Interrupt) }
	if err := starter.Run(); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() > 0 {
			return exit.ExitCode()
		}
		fmt.Fprintln(os.Stderr, "demo: starter:", err)
		return 1
	}
	return 0
}

// startWorker starts a worker and returns when it takes work. It has the public
// key alone: it can check what a person decided, and decide nothing itself.
func (s stage) startWorker(ctx context.Context) (stop func() error, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(s.dir, "worker.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process keeps its own
	worker := exec.Command(filepath.Join(s.bin, "worker"), "run", "--migrate")
	worker.Env = s.environment("FAIRLEAD_APPROVAL_PUBLIC_KEYS="+s.publicKey,
		"FAIRLEAD_OPSPILOT_SERVICES="+patient.RegistryDir(s.dir), "FAIRLEAD_OPSPILOT_VISIBLE=production:staging", "FAIRLEAD_HTTP_ADDRESS="+address)
	worker.Stdout, worker.Stderr = log, log
	// Ctrl-C is for the demo, which still needs the worker to cancel the run.
	worker.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := worker.Start(); err != nil {
		return nil, fmt.Errorf("start the worker: %w", err)
	}
	exited := make(chan error, 1)
	go func() { exited <- worker.Wait() }()
	stop = func() error { return stopProcess(worker.Process, exited) }
	ctx, cancel := context.WithTimeout(ctx, workerReadyIn)
	defer cancel()
	fmt.Println("Starting a worker ...")
	for {
		if ready(ctx, "http://"+address+"/readyz") {
			fmt.Printf("  worker runs as process %d\n", worker.Process.Pid)
			return stop, nil
		}
		select {
		case err := <-exited:
			return nil, fmt.Errorf("the worker ended early (%v); its log follows\n%s", err, s.workerLog())
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("the worker did not become ready; its log follows\n%s", s.workerLog()), stop())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func stopProcess(worker *os.Process, exited <-chan error) error {
	if err := worker.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case err := <-exited:
		if err != nil {
			return fmt.Errorf("the worker ended with %w", err)
		}
		return nil
	case <-time.After(workerEndsIn):
		err := worker.Kill()
		<-exited
		return errors.Join(errors.New("the worker did not end in time and was killed"), err)
	}
}

func ready(ctx context.Context, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, response.Body)
	return response.Body.Close() == nil && response.StatusCode == http.StatusOK
}

func (s stage) workerLog() string {
	text, err := os.ReadFile(filepath.Join(s.dir, "worker.log"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}
