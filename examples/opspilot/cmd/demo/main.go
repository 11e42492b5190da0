// Command demo runs OpsPilot once on a service that really fails: it starts the
// patient and a healthy neighbour, a fairlead worker, asks the question through
// the starter as any user would, lets a second person confirm the restart that
// the agent proposes, shows the ledger, and looks whether the service works
// again. Then a user says what to default to from now on: that is confirmed, used
// in the next conversation, traced, corrected, exported and erased. It ends what
// it started. Without a terminal it confirms by itself.
//
// It exits with 0 if all that succeeded and, when a restart was confirmed, the
// service works again. `make demo` brings the engine up first and sets the
// addresses that this program hands on to worker and starter by environment.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/examples/opspilot/patient"
)

// Who takes part. The policies let bob decide about what ann asks for, and not
// ann herself.
const (
	tenant    = "demo"
	requester = "ann"
	onCall    = "bob"

	defaultQuestion = "payment-api in production fails. Find out why, fix it if you can, and show me the evidence."
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// A second signal ends the demo at once.
	context.AfterFunc(ctx, stop)
	code, err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// stage is one demonstration: its programs and its folder.
type stage struct {
	bin, dir string
	// privateKey signs decisions and is for approvers' programs, publicKey is
	// what the worker believes.
	privateKey, publicKey string
}

func run(ctx context.Context) (code int, err error) {
	s := stage{}
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	question := ""
	flag.StringVar(&s.bin, "bin", filepath.Dir(self), "`folder` of the programs worker, starter and payment-api")
	flag.StringVar(&question, "question", defaultQuestion, "what to ask")
	flag.Parse()
	if s.privateKey, s.publicKey, err = newKeyPair(); err != nil {
		return 1, err
	}
	if s.dir, err = os.MkdirTemp("", "fairlead-demo-"); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.dir)) }()
	if err := s.writePolicies(); err != nil {
		return 1, err
	}

	fmt.Println("Starting payment-api, which leaks connections, and a healthy ledger-api ...")
	sick, err := s.startService(ctx, patient.StartConfig{Name: "payment-api"})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, sick.Stop()) }()
	well, err := s.startService(ctx, patient.StartConfig{Name: "ledger-api", Healthy: true})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, well.Stop()) }()
	stopWorker, err := s.startWorker(ctx)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, stopWorker()) }()

	fmt.Printf("\n> %s\n\n", question)
	runID := fmt.Sprintf("demo-%d", time.Now().UnixMilli())
	approver := approver{stage: s, runID: runID}
	if isTerminal(os.Stdin) {
		approver.person = os.Stdin
	}
	code, err = s.ask(ctx, &approver, runID, question)
	if err != nil || code != 0 {
		return code, err
	}
	fmt.Println()
	if code := s.starter(ctx, "show", runID, "--tenant", tenant); code != 0 {
		return code, nil
	}
	// A person may decline, and another question need not lead to a restart.
	if approver.approved || approver.person == nil && question == defaultQuestion {
		if err := checkRecovered(ctx, sick); err != nil {
			return 1, err
		}
	}
	if question != defaultQuestion {
		return 0, nil
	}
	twin, err := s.startService(ctx, patient.StartConfig{Name: "payment-api", Environment: "staging", Healthy: true})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, twin.Stop()) }()
	user := person{stage: s, name: "carol-" + strings.TrimPrefix(runID, "demo-"), approver: &approver}
	return 0, user.remembers(ctx)
}

func (s stage) startService(ctx context.Context, config patient.StartConfig) (*patient.Patient, error) {
	config.Binary, config.Dir = filepath.Join(s.bin, "payment-api"), s.dir
	p, err := patient.Start(ctx, config)
	if err != nil {
		return nil, err
	}
	fmt.Printf("  %s runs as process %d, under its supervisor, process %d\n", config.Name, p.Service.PID, p.PID())
	return p, nil
}

// ask follows the run to its end and lets the approver decide meanwhile. A run
// that is left before its end is canceled, so that it does not wait for a person
// until tomorrow.
func (s stage) ask(ctx context.Context, a *approver, runID, question string) (code int, err error) {
	asking, stop := context.WithCancel(ctx)
	defer stop()
	decided := make(chan error, 1)
	go func() {
		err := a.decide(asking)
		if err != nil {
			stop()
		}
		decided <- err
	}()
	code = s.starter(asking, "run", "--agent", "opspilot", "--tenant", tenant, "--user", requester, "--environment", "production",
		"--conversation", runID, "--run-id", runID, "--message", question)
	left := asking.Err() != nil
	stop()
	err = <-decided
	if left {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelIn)
		defer cancel()
		fmt.Println("\nCanceling the run ...")
		s.starter(ctx, "cancel", runID, "--tenant", tenant, "--user", requester)
		return max(code, 1), err
	}
	if code != 0 {
		return code, errors.Join(err, fmt.Errorf("the run did not succeed (exit code %d); the worker's log follows\n%s", code, s.workerLog()))
	}
	return 0, err
}

// checkRecovered asks the service itself, whatever the agent says.
func checkRecovered(ctx context.Context, p *patient.Patient) error {
	status, err := p.Status(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("\npayment-api itself says: process %d, running since %s, %d payments succeeded, %d failed, %d connections leaked.\n",
		status.PID, status.StartedAt.Format(time.TimeOnly), status.Requests.Succeeded, status.Requests.Failed, status.Pool.LeakedConnections)
	switch {
	case status.PID == p.Service.PID:
		return errors.New("payment-api was not restarted")
	case status.Pool.LeakedConnections > 0 || status.Requests.Failed > 0 || status.Requests.Succeeded == 0:
		return errors.New("payment-api was restarted and does not work again")
	}
	return nil
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	// The character device that is no terminal and often somebody's input.
	null, err := os.Stat(os.DevNull)
	return err == nil && !os.SameFile(info, null)
}
