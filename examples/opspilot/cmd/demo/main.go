// Command demo runs OpsPilot once on a service that really fails: it starts the
// patient and a healthy neighbour, a fairlead worker, asks the question through
// the starter as any user would, shows the ledger, and ends what it started.
//
// `make demo` brings the engine up first and sets the addresses that this
// program hands on to worker and starter by environment.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/examples/opspilot/patient"
)

const (
	workerReadyIn = 60 * time.Second
	workerEndsIn  = 30 * time.Second
	taskQueue     = "fairlead-demo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// stage is one demonstration: its programs, its folder, and its question.
type stage struct {
	bin, dir, question string
	worker             string // address of the worker's health endpoint
}

func run(ctx context.Context) (code int, err error) {
	s := stage{}
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	flag.StringVar(&s.bin, "bin", filepath.Dir(self), "`folder` of the programs worker, starter and payment-api")
	flag.StringVar(&s.question, "question", "Why does payment-api in production fail? Show me the evidence.", "what to ask")
	flag.Parse()
	if s.dir, err = os.MkdirTemp("", "fairlead-demo-"); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.dir)) }()

	fmt.Println("Starting payment-api, which leaks connections, and a healthy ledger-api ...")
	for _, config := range []patient.StartConfig{
		{Name: "payment-api"},
		{Name: "ledger-api", Healthy: true},
	} {
		config.Binary, config.Dir = filepath.Join(s.bin, "payment-api"), s.dir
		p, err := patient.Start(ctx, config)
		if err != nil {
			return 1, err
		}
		defer func() { err = errors.Join(err, p.Stop()) }()
		fmt.Printf("  %s runs as process %d\n", config.Name, p.PID())
	}
	stopWorker, err := s.startWorker(ctx)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, stopWorker()) }()

	fmt.Printf("\n> %s\n\n", s.question)
	runID := fmt.Sprintf("demo-%d", time.Now().UnixMilli())
	code = s.starter(ctx, "run", "--agent", "opspilot", "--tenant", "demo", "--user", "ann", "--environment", "production",
		"--conversation", runID, "--run-id", runID, "--message", s.question)
	if code != 0 {
		return code, fmt.Errorf("the run did not succeed (exit code %d); the worker's log follows\n%s", code, s.workerLog())
	}
	fmt.Println()
	return s.starter(ctx, "show", runID, "--tenant", "demo"), nil
}

// startWorker starts a worker and returns when it takes work.
func (s *stage) startWorker(ctx context.Context) (stop func() error, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.worker = listener.Addr().String()
	if err := listener.Close(); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(s.dir, "worker.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process keeps its own
	worker := exec.Command(filepath.Join(s.bin, "worker"), "run", "--migrate")
	worker.Env = append(s.environment(), "FAIRLEAD_OPSPILOT_SERVICES="+patient.RegistryDir(s.dir), "FAIRLEAD_HTTP_ADDRESS="+s.worker)
	worker.Stdout, worker.Stderr = log, log
	if err := worker.Start(); err != nil {
		return nil, fmt.Errorf("start the worker: %w", err)
	}
	exited := make(chan error, 1)
	go func() { exited <- worker.Wait() }()
	stop = func() error {
		if err := worker.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		select {
		case err := <-exited:
			if err != nil {
				return fmt.Errorf("the worker ended with %w", err)
			}
			return nil
		case <-time.After(workerEndsIn):
			return errors.Join(errors.New("the worker did not end in time and was killed"), worker.Process.Kill())
		}
	}
	ctx, cancel := context.WithTimeout(ctx, workerReadyIn)
	defer cancel()
	fmt.Println("Starting a worker ...")
	for {
		if ready(ctx, "http://"+s.worker+"/readyz") {
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

func (s *stage) starter(ctx context.Context, arguments ...string) int {
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

// environment gives the demo a task queue of its own, so that a worker that
// somebody else left running does not answer in its place.
func (s *stage) environment() []string {
	return append(os.Environ(), "FAIRLEAD_TASK_QUEUE="+taskQueue)
}

func (s *stage) workerLog() string {
	text, err := os.ReadFile(filepath.Join(s.dir, "worker.log"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}
