package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	pendingEvery = 200 * time.Millisecond
	// patience is how long nobody may be able to say what waits.
	patience = 30 * time.Second
)

// approver decides about the writes that one run waits for, with the program
// that an approver has: starter pending, approve and decline.
type approver struct {
	stage stage
	runID string
	// person answers; nil if nobody is there, and everything is approved.
	person io.Reader
	// approved says that something was approved.
	approved bool

	answers chan string
}

// plan names what waits for a decision.
type plan struct {
	CallID   string `json:"call_id"`
	Revision int    `json:"revision"`
	Hash     string `json:"plan_hash"`
}

// decide decides about each plan that waits, until ctx ends, and returns nil
// then. An error means that no decision can be taken.
func (a *approver) decide(ctx context.Context) error {
	// A decision that failed may have come too late: the service changed, and the
	// run waits with another plan. If it waits with the same one, nothing helps.
	decided := map[plan]error{}
	known := time.Now()
	for {
		plans, err := a.pending(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			known = time.Now()
		case time.Since(known) > patience:
			return fmt.Errorf("nobody can say what waits for %s: %w", onCall, err)
		}
		for _, waiting := range plans {
			failed, seen := decided[waiting]
			if failed != nil {
				return failed
			}
			if !seen {
				decided[waiting] = a.decideOne(ctx, waiting)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pendingEvery):
		}
	}
}

// pending asks what waits. Before the run is known it is an error.
func (a *approver) pending(ctx context.Context) ([]plan, error) {
	starter := exec.CommandContext(ctx, filepath.Join(a.stage.bin, "starter"),
		"pending", a.runID, "--tenant", tenant, "--user", onCall, "--json")
	starter.Env = a.stage.environment()
	output, err := starter.Output()
	if err != nil {
		return nil, fmt.Errorf("starter pending: %w", err)
	}
	var found struct {
		Plans []plan `json:"plans"`
	}
	if err := json.Unmarshal(output, &found); err != nil {
		return nil, fmt.Errorf("starter pending: %w", err)
	}
	return found.Plans, nil
}

// decideOne shows the plan as the starter shows it, gets an answer, and sends
// it for this plan and no other.
func (a *approver) decideOne(ctx context.Context, waiting plan) error {
	fmt.Printf("\nThe run waits. This is what %s, who is on call, is asked to confirm:\n\n", onCall)
	a.stage.starter(ctx, "pending", a.runID, "--tenant", tenant, "--user", onCall)
	decision := "decline"
	if a.person == nil {
		fmt.Printf("\nNobody is at a terminal: the demo approves in the name of %s.\n", onCall)
		decision = "approve"
	} else {
		fmt.Printf("\nApprove as %s? [y/N] ", onCall)
		answer, err := a.answer(ctx)
		if err != nil {
			return err
		}
		if answer == "y" || answer == "yes" {
			decision = "approve"
		}
	}
	what, err := a.send(ctx, decision, waiting)
	if err != nil {
		return err
	}
	fmt.Printf("\n%s %ss. %s\n\n", onCall, decision, what)
	a.approved = a.approved || decision == "approve"
	return nil
}

// send signs and sends the decision, and says what became of it.
func (a *approver) send(ctx context.Context, decision string, waiting plan) (string, error) {
	starter := exec.CommandContext(ctx, filepath.Join(a.stage.bin, "starter"),
		decision, a.runID, "--tenant", tenant, "--user", onCall, "--call", waiting.CallID, "--plan", waiting.Hash, "--yes", "--json")
	starter.Env = a.stage.environment("FAIRLEAD_APPROVAL_KEY=" + a.stage.privateKey)
	starter.Stderr = os.Stderr
	starter.Cancel = func() error { return starter.Process.Signal(os.Interrupt) }
	output, err := starter.Output()
	if err != nil {
		return "", fmt.Errorf("starter %s: %w", decision, err)
	}
	var became struct {
		Result string `json:"write_result"`
	}
	if err := json.Unmarshal(output, &became); err != nil {
		return "", fmt.Errorf("starter %s: %w", decision, err)
	}
	if decision == "decline" {
		return "Nothing is changed.", nil
	}
	return "The write: " + strings.ReplaceAll(became.Result, "_", " ") + ".", nil
}

// answer waits for a line. The end of the input is an empty one.
func (a *approver) answer(ctx context.Context) (string, error) {
	if a.answers == nil {
		a.answers = make(chan string)
		go func() {
			lines := bufio.NewScanner(a.person)
			for lines.Scan() {
				a.answers <- strings.ToLower(strings.TrimSpace(lines.Text()))
			}
			close(a.answers)
		}()
	}
	select {
	case answer := <-a.answers:
		return answer, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
