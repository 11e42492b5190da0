// Command chaos lets runs with writes go through a storm, and counts (EVAL-3):
// workers are killed at random, the Temporal server and PostgreSQL are killed
// and started again, the ticket service times out, drops connections and cannot
// be asked, and people approve, decline, forget, repeat themselves and forge. At
// the end every run has come to an end, every ticket is recorded once and every
// record has its ticket, the ledger adds up, and nothing waits.
//
// `make chaos` runs it on servers of its own, which it starts and stops; about
// three minutes. It prints its counts as lines CHAOS <name> <value> and fails if
// one of them is wrong. The test of this package is a short form on the shared
// servers, without restarts.
//
// The worker processes are this program again, told so by their environment. The
// package may import everything.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/db"
)

// exitInterrupted is what shells use for a program ended by Ctrl-C.
const exitInterrupted = 130

func main() {
	if isWorker() {
		serve()
		return
	}
	// Signals are caught until everything has been stopped.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx)
	if ctx.Err() != nil {
		fmt.Fprintln(os.Stderr, "chaos: interrupted")
		os.Exit(exitInterrupted)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	seed := flag.Uint64("seed", 0, "seed of the plan of faults; 0 takes one from the clock")
	program := flag.String("temporal-dev", "bin/temporal-dev", "the program that brings the servers")
	full := size{restarts: true, confirming: 25 * time.Second}
	flag.IntVar(&full.runs, "runs", 100, "how many runs begin")
	flag.IntVar(&full.workers, "workers", 3, "how many worker processes serve them")
	flag.IntVar(&full.kills, "kills", 24, "how many workers are killed")
	flag.DurationVar(&full.starting, "starting", 100*time.Second, "in what time runs begin and faults happen")
	flag.DurationVar(&full.draining, "draining", 100*time.Second, "how long the last runs may take after that")
	flag.Parse()
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	if full.runs < 1 || full.workers < 1 || full.kills < 1 || full.starting <= 0 {
		return errors.New("runs, workers, kills and starting must be positive")
	}
	fmt.Printf("CHAOS seed %d\n", *seed)
	if *program, err = filepath.Abs(*program); err != nil {
		return err
	}
	// A hard limit, beyond all the limits of its parts.
	ctx, cancel := context.WithTimeout(ctx, full.starting+full.draining+3*time.Minute)
	defer cancel()

	servers, err := startEngine(ctx, *program, os.Stdout)
	if servers != nil {
		defer func() { err = errors.Join(err, servers.close()) }()
	}
	if err != nil {
		return err
	}
	if err := db.Migrate(ctx, servers.databaseURL); err != nil {
		return err
	}
	files := filepath.Join(servers.dir, "storm")
	if err := os.Mkdir(files, 0o755); err != nil {
		return err
	}
	r, err := weather(ctx, shore{
		databaseURL: servers.databaseURL, temporalAddress: servers.temporalAddress(), namespace: "default",
		dir: files, engine: servers, out: os.Stdout,
	}, *seed, full)
	if err != nil {
		return err
	}
	r.print(os.Stdout)
	return r.judge(full)
}

// judge says whether a storm was one, and whether everything withstood it.
func (r report) judge(s size) error {
	restarts := 0
	if s.restarts {
		restarts = 1
	}
	var errs []error
	for name, want := range map[string]int{"runs": s.runs, "kills": s.kills, "engine_restarts": restarts, "postgres_restarts": restarts} {
		if got := r.value(name); got != want {
			errs = append(errs, fmt.Errorf("%s is %d, want %d", name, got, want))
		}
	}
	if r.value("commits") == 0 || r.value("commits") != r.value("effects") {
		errs = append(errs, fmt.Errorf("%d commits are recorded and %d effects happened", r.value("commits"), r.value("effects")))
	}
	if n := len(r.differences); n > 0 {
		errs = append(errs, fmt.Errorf("%d differences; the end of the workers' log:\n%s", n, r.log))
	}
	return errors.Join(errs...)
}
