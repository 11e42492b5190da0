package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/examples/opspilot/services"
)

// fleet is the worker processes. Each is this program again.
type fleet struct {
	env []string
	dir string
	log *os.File

	mu      sync.Mutex
	workers []*workerProcess
	closed  bool
	kills   int
	// died counts workers that ended without being killed.
	died atomic.Int64
	// watching waits for all that were started.
	watching sync.WaitGroup
}

type workerProcess struct {
	*exec.Cmd
	stdin  io.Closer
	killed atomic.Bool
}

// newFleet starts n workers. settings are what a worker reads from its
// environment; whatever else this process was told about fairlead is kept from
// them.
func newFleet(n int, dir string, settings map[string]string) (*fleet, error) {
	log, err := os.OpenFile(filepath.Join(dir, "workers.log"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	f := &fleet{dir: dir, log: log, env: cleanEnvironment(), workers: make([]*workerProcess, n)}
	for name, value := range settings {
		f.env = append(f.env, name+"="+value)
	}
	for i := range f.workers {
		if f.workers[i], err = f.start(); err != nil {
			f.close()
			return nil, err
		}
	}
	return f, nil
}

// cleanEnvironment is this process's without settings of fairlead's programs.
func cleanEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		for _, prefix := range []string{"FAIRLEAD_", "TEMPORAL_", "DATABASE_URL=", "OPENAI_", "PG"} {
			if strings.HasPrefix(variable, prefix) {
				return true
			}
		}
		return false
	})
}

func (f *fleet) start() (*workerProcess, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &workerProcess{Cmd: exec.Command(program)}
	w.Dir, w.Env, w.Stdout, w.Stderr = f.dir, f.env, f.log, f.log
	// Ctrl-C is for the storm, which then ends its workers.
	w.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if w.stdin, err = w.StdinPipe(); err != nil {
		return nil, err
	}
	if err := w.Start(); err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	f.watching.Go(func() {
		_ = w.Wait()
		if !w.killed.Load() {
			f.died.Add(1)
		}
	})
	return w, nil
}

// kill ends worker i as a crash would, and puts another one in its place.
func (f *fleet) kill(i int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.end(f.workers[i])
	f.kills++
	var err error
	f.workers[i], err = f.start()
	return err
}

func (f *fleet) end(w *workerProcess) {
	if w == nil {
		return
	}
	w.killed.Store(true)
	_ = w.Process.Kill()
}

// close kills all workers and waits until they have ended.
func (f *fleet) close() {
	f.mu.Lock()
	f.closed = true
	for _, w := range f.workers {
		f.end(w)
	}
	f.mu.Unlock()
	f.watching.Wait()
	_ = f.log.Close()
}

// tail is the end of the workers' log.
func (f *fleet) tail() string {
	text, err := os.ReadFile(f.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}

// registerService lets open_ticket know the one service that tickets are about.
func registerService(dir string) error {
	registry, err := services.Open(dir)
	if err != nil {
		return err
	}
	return registry.Put(services.Record{
		ID: services.ID("payment-api", environment), Name: "payment-api", Environment: environment,
		Address: "127.0.0.1:9", PID: 1, StartedAt: time.Now(), LogPath: filepath.Join(dir, "log"),
	})
}
