// Command bench measures what a run costs as a ratio to a bare Temporal
// workflow on the same server in the same minutes (PERF-1): absolute times of a
// busy machine say little. `make bench` brings the servers up and runs it.
//
// It also measures what a conversation costs beside plain SQL and plain memory, and
// what it costs to recall what is remembered.
//
// Each figure is a line BENCH <name> <value> <unit>. Rounds alternate between
// the parties, and a figure is the median over the rounds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/tink-crypto/tink-go/v2/tink"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/codec"
	"github.com/fairlead/fairlead/internal/vault"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type settings struct {
	rounds, runs, load, parallel int
	// only is empty for everything.
	only string
}

// The parts of a bench, each of which can be had alone.
const (
	onlyRuns          = "runs"
	onlyConversations = "conversations"
	onlyMemory        = "memory"
)

func run(ctx context.Context) (err error) {
	var s settings
	flag.IntVar(&s.rounds, "rounds", 3, "rounds, alternating between the parties")
	flag.IntVar(&s.runs, "runs", 25, "sequential runs a round and party")
	flag.IntVar(&s.load, "load", 200, "runs a round and party under load")
	flag.IntVar(&s.parallel, "parallel", 50, "runs at a time under load")
	flag.StringVar(&s.only, "only", "", "one part alone: "+onlyRuns+", "+onlyConversations+" or "+onlyMemory)
	flag.Parse()
	if !slices.Contains([]string{"", onlyRuns, onlyConversations, onlyMemory}, s.only) {
		return fmt.Errorf("there is no part %q, only %s, %s and %s", s.only, onlyRuns, onlyConversations, onlyMemory)
	}

	address := os.Getenv("TEMPORAL_ADDRESS")
	if address == "" || os.Getenv("DATABASE_URL") == "" {
		return errors.New("TEMPORAL_ADDRESS and DATABASE_URL are not set: run `make bench`, which brings the servers and sets them")
	}
	url, drop, err := temporaryDatabase(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drop()) }()
	kek, err := generatedKey()
	if err != nil {
		return err
	}
	database, err := db.Open(ctx, url, db.Options{KeyEncryption: kek})
	if err != nil {
		return err
	}
	defer database.Close()
	parts := []struct {
		name    string
		measure func() error
	}{
		{onlyRuns, func() error { return runs(ctx, s, address, database) }},
		{onlyConversations, func() error { return conversations(ctx, url, database) }},
		{onlyMemory, func() error { return memory(ctx, url, database) }},
	}
	for _, part := range parts {
		if s.only != "" && s.only != part.name {
			continue
		}
		if err := part.measure(); err != nil {
			return err
		}
	}
	return nil
}

// generatedKey is a key-encryption key for this bench alone.
func generatedKey() (tink.AEAD, error) {
	text, err := vault.GenerateLocal()
	if err != nil {
		return nil, err
	}
	return db.LocalKey(text)
}

// runs measures whole runs.
func runs(ctx context.Context, s settings, address string, database *db.DB) error {
	bareClient, err := client.Dial(client.Options{
		HostPort: address, Namespace: os.Getenv("TEMPORAL_NAMESPACE"), Logger: silent,
	})
	if err != nil {
		return err
	}
	defer bareClient.Close()
	// Payloads of runs are sealed, as they always are.
	agentClient, err := client.NewClientFromExistingWithContext(ctx, bareClient, client.Options{
		Namespace: os.Getenv("TEMPORAL_NAMESPACE"), Logger: silent, DataConverter: codec.DataConverter(database),
	})
	if err != nil {
		return err
	}
	defer agentClient.Close()
	parties, stopWorkers, err := startParties(bareClient, agentClient, database)
	if err != nil {
		return err
	}
	defer stopWorkers()
	// Caches, connections, sticky queues.
	if _, err := sequential(ctx, parties, 3); err != nil {
		return err
	}
	return measure(ctx, s, parties)
}

var silent = log.NewStructuredLogger(slog.New(slog.DiscardHandler))

// party is one kind of workflow that is measured.
type party struct {
	name  string
	start func(ctx context.Context) (client.WorkflowRun, error)
	check func(ctx context.Context, run client.WorkflowRun) error
}

func (p party) once(ctx context.Context) error {
	run, err := p.start(ctx)
	if err != nil {
		return err
	}
	return p.check(ctx, run)
}

// sequential returns the median wall time of n runs of each party. The parties
// take turns run by run, because a busy machine is slow for seconds on end.
func sequential(ctx context.Context, parties []party, n int) (map[string]time.Duration, error) {
	times := map[string][]time.Duration{}
	for range n {
		for _, p := range parties {
			began := time.Now()
			if err := p.once(ctx); err != nil {
				return nil, fmt.Errorf("%s: %w", p.name, err)
			}
			times[p.name] = append(times[p.name], time.Since(began))
		}
	}
	medians := map[string]time.Duration{}
	for name, of := range times {
		medians[name] = median(of)
	}
	return medians, nil
}

// throughput returns runs per second of n runs, parallel at a time.
func (p party) throughput(ctx context.Context, n, parallel int) (float64, error) {
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		first error
	)
	places := make(chan struct{}, parallel)
	began := time.Now()
	for range n {
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			if err := p.once(ctx); err != nil {
				mu.Lock()
				first = errors.Join(first, err)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if first != nil {
		return 0, fmt.Errorf("%s: %w", p.name, first)
	}
	return float64(n) / time.Since(began).Seconds(), nil
}

func measure(ctx context.Context, s settings, parties []party) error {
	times, rates := map[string][]float64{}, map[string][]float64{}
	for round := range s.rounds {
		took, err := sequential(ctx, parties, s.runs)
		if err != nil {
			return err
		}
		for _, p := range parties {
			rate, err := p.throughput(ctx, s.load, s.parallel)
			if err != nil {
				return err
			}
			ms := float64(took[p.name].Microseconds()) / 1000
			times[p.name] = append(times[p.name], ms)
			rates[p.name] = append(rates[p.name], rate)
			fmt.Printf("round %d  %-6s  %7.1f ms a run, %6.1f runs/s\n", round+1, p.name, ms, rate)
		}
	}
	ratio := func(of map[string][]float64, name string) float64 {
		var ratios []float64
		for i := range s.rounds {
			ratios = append(ratios, of[name][i]/of["bare"][i])
		}
		return median(ratios)
	}
	for _, p := range parties {
		fmt.Printf("BENCH %s_time %.1f ms\n", p.name, median(times[p.name]))
		fmt.Printf("BENCH %s_throughput %.1f runs/s\n", p.name, median(rates[p.name]))
	}
	fmt.Printf("BENCH run_time_vs_bare %.2f ratio\n", ratio(times, "run"))
	fmt.Printf("BENCH run_throughput_vs_bare %.2f ratio\n", ratio(rates, "run"))
	fmt.Printf("BENCH run_local_time_vs_bare %.2f ratio\n", ratio(times, "local"))
	fmt.Printf("BENCH run_local_throughput_vs_bare %.2f ratio\n", ratio(rates, "local"))
	return nil
}

func median[T time.Duration | float64](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}

// agentParty runs the bench agent of the given name.
func agentParty(name, agentName string, temporalClient client.Client, queue string) party {
	return party{
		name: name,
		start: func(ctx context.Context) (client.WorkflowRun, error) {
			id := uuid.NewString()
			return temporalClient.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: agent.WorkflowID("bench", id), TaskQueue: queue},
				agent.WorkflowAgentRun, agent.RunRequest{
					RunID: id, Tenant: "bench", User: "bench", Conversation: id, Agent: agentName,
					Environment: "bench", Message: "Look ten times.",
				})
		},
		check: func(ctx context.Context, run client.WorkflowRun) error {
			var result agent.RunResult
			if err := run.Get(ctx, &result); err != nil {
				return err
			}
			if result.Reason != agent.ReasonFinal || result.Steps != modelCalls || result.ToolCalls != reads {
				return fmt.Errorf("a run ended %s (%s) after %d steps and %d calls", result.Reason, result.Detail, result.Steps, result.ToolCalls)
			}
			return nil
		},
	}
}

func bareParty(temporalClient client.Client, queue string) party {
	return party{
		name: "bare",
		start: func(ctx context.Context) (client.WorkflowRun, error) {
			return temporalClient.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: "bare-" + uuid.NewString(), TaskQueue: queue}, bare)
		},
		check: func(ctx context.Context, run client.WorkflowRun) error { return run.Get(ctx, nil) },
	}
}

func options() worker.Options { return worker.Options{DisableRegistrationAliasing: true} }
