package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// learnedWithin is how long what was said may take to wait for a confirmation:
// it is looked through after the answer, in the background.
const learnedWithin = 30 * time.Second

// person is the user of the second act: one of its own for each demonstration,
// because at its end it is erased for good.
type person struct {
	stage stage
	name  string
	// answers is where a person sits; nil confirms by itself.
	approver *approver
	runs     int
}

// remembers is the second act: what a user wants from now on is learned in one
// conversation, confirmed, used in the next and overridden by present words;
// then it is traced, corrected, exported, forgotten, and the user erased.
func (p *person) remembers(ctx context.Context) error {
	fmt.Printf("\nThe same service runs in staging as well. %s has a default.\n", p.name)
	if err := p.says(ctx, "From now on default to production."); err != nil {
		return err
	}
	confirmed, err := p.confirms(ctx)
	if err != nil || !confirmed {
		return err
	}
	if err := p.says(ctx, "How is payment-api?"); err != nil {
		return err
	}
	influenced := p.runID()
	if err := p.says(ctx, "How is payment-api in staging?"); err != nil {
		return err
	}
	fmt.Printf("\nWhy did it look in production?\n\n")
	if err := p.starter(ctx, "memory", "trace", "--run", influenced, "--tenant", tenant); err != nil {
		return err
	}
	records, err := p.remembered(ctx)
	if err != nil {
		return err
	}
	if len(records) != 1 {
		return fmt.Errorf("%d memories are in force, want the one default", len(records))
	}
	fmt.Printf("\n%s corrects it, exports all that is remembered, and has it forgotten.\n\n", p.name)
	export := filepath.Join(p.stage.dir, "export.json")
	for _, arguments := range [][]string{
		{"memory", "correct", records[0], "--value", "staging"},
		{"memory", "export", "--output", export},
		{"memory", "forget", records[0]},
	} {
		if err := p.starter(ctx, append(arguments, "--tenant", tenant, "--user", p.name)...); err != nil {
			return err
		}
	}
	if err := p.says(ctx, "How is payment-api?"); err != nil {
		return err
	}
	fmt.Printf("\nAnd %s is erased.\n\n", p.name)
	return p.starter(ctx, "memory", "erase", "--tenant", tenant, "--user", p.name, "--yes-erase", p.name)
}

func (p *person) runID() string { return fmt.Sprintf("%s-%d", p.name, p.runs) }

// says sends a message in a conversation of its own and shows the answer.
func (p *person) says(ctx context.Context, message string) error {
	p.runs++
	fmt.Printf("\n> %s\n\n", message)
	return p.starter(ctx, "run", "--agent", "opspilot", "--tenant", tenant, "--user", p.name, "--environment", "production",
		"--conversation", p.runID(), "--run-id", p.runID(), "--message", message)
}

func (p *person) starter(ctx context.Context, arguments ...string) error {
	if code := p.stage.starter(ctx, arguments...); code != 0 {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("starter %s %s ended with %d; the worker's log follows\n%s", arguments[0], arguments[1], code, p.stage.workerLog())
	}
	return nil
}

// confirms waits until the default waits for a confirmation, shows exactly what
// would be remembered, and confirms it if the person wants that.
func (p *person) confirms(ctx context.Context) (confirmed bool, err error) {
	waiting, err := p.waits(ctx)
	if err != nil {
		return false, err
	}
	fmt.Printf("\nThis is what %s is asked to confirm, and nothing else would be remembered:\n\n", p.name)
	if err := p.starter(ctx, "memory", "confirm", "--tenant", tenant, "--user", p.name); err != nil {
		return false, err
	}
	decision := []string{"memory", "confirm", waiting.ID, "--tenant", tenant, "--user", p.name, "--hash", waiting.Hash, "--yes"}
	if p.approver.person == nil {
		fmt.Printf("\nNobody is at a terminal: the demo confirms in the name of %s.\n\n", p.name)
	} else {
		fmt.Printf("\nConfirm as %s? [y/N] ", p.name)
		answer, err := p.approver.answer(ctx)
		if err != nil {
			return false, err
		}
		if confirmed := answer == "y" || answer == "yes"; !confirmed {
			decision = append(decision, "--decline")
		}
	}
	confirming := exec.CommandContext(ctx, filepath.Join(p.stage.bin, "starter"), decision...)
	confirming.Env = p.stage.environment("FAIRLEAD_APPROVAL_KEY=" + p.stage.privateKey)
	confirming.Stdout, confirming.Stderr = os.Stdout, os.Stderr
	confirming.Cancel = func() error { return confirming.Process.Signal(os.Interrupt) }
	if err := confirming.Run(); err != nil {
		return false, fmt.Errorf("starter memory confirm: %w; the worker's log follows\n%s", err, p.stage.workerLog())
	}
	return decision[len(decision)-1] != "--decline", nil
}

// proposed names what waits for a confirmation.
type proposed struct {
	ID   string `json:"id"`
	Hash string `json:"hash"`
}

func (p *person) waits(ctx context.Context) (proposed, error) {
	ctx, cancel := context.WithTimeout(ctx, learnedWithin)
	defer cancel()
	for {
		var found struct {
			Memories []proposed `json:"memories"`
		}
		err := p.read(ctx, &found, "memory", "confirm")
		if err == nil && len(found.Memories) > 0 {
			return found.Memories[0], nil
		}
		select {
		case <-ctx.Done():
			return proposed{}, errors.Join(fmt.Errorf("nothing waits for %s to confirm it; the worker's log follows\n%s", p.name, p.stage.workerLog()), err)
		case <-time.After(pendingEvery):
		}
	}
}

// remembered are the IDs of the records in force.
func (p *person) remembered(ctx context.Context) (ids []string, err error) {
	var found struct {
		Memories []struct {
			ID string `json:"id"`
		} `json:"memories"`
	}
	err = p.read(ctx, &found, "memory", "list")
	for _, m := range found.Memories {
		ids = append(ids, m.ID)
	}
	return ids, err
}

// read asks the starter for JSON.
func (p *person) read(ctx context.Context, into any, arguments ...string) error {
	asking := exec.CommandContext(ctx, filepath.Join(p.stage.bin, "starter"), append(arguments, "--tenant", tenant, "--user", p.name, "--json")...)
	asking.Env = p.stage.environment()
	output, err := asking.Output()
	if err != nil {
		return fmt.Errorf("starter %s %s: %w", arguments[0], arguments[1], err)
	}
	return json.Unmarshal(output, into)
}
