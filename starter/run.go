package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/vault"
)

// Defaults of a request from the command line, where nobody else has said who
// asks.
const (
	defaultTenant      = "demo"
	defaultUser        = "demo"
	defaultEnvironment = "production"
)

// fromStdin as the message means standard input.
const fromStdin = "-"

// runFlags are the flags of starter run.
type runFlags struct {
	request         agent.RunRequest
	message         string
	facts           []string
	session         agent.SessionChange
	maxSteps        int
	maxToolCalls    int
	maxTokens       int64
	maxCost         string
	timeout         time.Duration
	expectedVersion int64
	detach          bool
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run --agent NAME --message TEXT",
		Short: "Start a run and follow it to its end",
		Long: "Starts a run and follows it to its end. --fact, --forbid and --lift are what the user settles\n" +
			"for the conversation with this run; see starter session for what holds there.",
		Example: "  starter run --agent opspilot --message 'Why does payment-api fail?'\n" +
			"  starter run --agent opspilot --max-steps 3 --timeout 30s < question.txt",
		Args: noArguments(" (the question goes into --message, in quotes)"),
		RunE: func(c *cobra.Command, _ []string) error { return a.run(c, &f) },
	}
	flags := c.Flags()
	flags.StringVar(&f.request.Agent, "agent", "", "name of the agent")
	flags.StringVar(&f.request.AgentVersion, "agent-version", "", "version of its definition (default: the current one)")
	flags.StringVar(&f.message, "message", "", "what to ask; - or nothing reads standard input")
	flags.StringVar(&f.request.Tenant, "tenant", defaultTenant, "tenant on whose behalf the agent runs")
	flags.StringVar(&f.request.User, "user", defaultUser, "user on whose behalf the agent runs")
	flags.StringVar(&f.request.Environment, "environment", defaultEnvironment, "where the agent acts")
	flags.StringVar(&f.request.Conversation, "conversation", "", "conversation to continue (default: a new one)")
	flags.StringVar(&f.request.Group, "group", "", "group whose chat the conversation is: nothing personal is remembered in it")
	flags.StringVar(&f.request.Project, "project", "", "project that the conversation belongs to")
	flags.Int64Var(&f.expectedVersion, "expect-version", 0, "refuse unless the conversation is at this version")
	flags.StringVar(&f.request.RunID, "run-id", "", "identifier of the run (default: a new one); the same one twice is one run")
	flags.StringVar(&f.request.Page, "page", "", "page of the product that the user is on")
	flags.StringSliceVar(&f.request.Flags, "flag", nil, "feature flag that holds for the user; may be repeated")
	flags.StringArrayVar(&f.facts, "fact", nil, "KEY=VALUE: a fact that the user confirms; may be repeated")
	flags.StringArrayVar(&f.session.Forbid, "forbid", nil, "tool that must not be used in the conversation until the user lifts it; may be repeated")
	flags.StringArrayVar(&f.session.Lift, "lift", nil, "ID of a standing prohibition that the user takes back; may be repeated")
	flags.IntVar(&f.maxSteps, "max-steps", 0, "tighten the definition's limit of model responses")
	flags.IntVar(&f.maxToolCalls, "max-tool-calls", 0, "tighten the limit of tool calls")
	flags.Int64Var(&f.maxTokens, "max-tokens", 0, "tighten the limit of tokens")
	flags.StringVar(&f.maxCost, "max-cost", "", "tighten the limit of cost, in dollars such as 0.05")
	flags.DurationVar(&f.timeout, "timeout", 0, "tighten the time that the run may take")
	flags.BoolVar(&f.detach, "detach", false, "start the run and do not wait for it")
	return c
}

func (a *app) run(c *cobra.Command, f *runFlags) error {
	request, err := a.request(c, f)
	if err != nil {
		return err
	}
	// Nothing is stored for a request that is refused here.
	if err := request.Validate(); err != nil {
		return &exit{exitUsage, err.Error()}
	}
	// The message is sealed under the user's keys before it leaves.
	if err := a.requireContent(); err != nil {
		return err
	}
	ctx := c.Context()
	if err := a.mustTakePart(ctx, request); err != nil {
		return err
	}
	temporal, err := a.openEngine(ctx, a.settings)
	if err != nil {
		return err
	}
	defer temporal.Close()
	switch err := temporal.Start(ctx, request); {
	case err != nil && ctx.Err() != nil && unsent(err):
		return interruptedBeforeSending()
	case err != nil && ctx.Err() != nil:
		return &exit{exitInterrupted, fmt.Sprintf("interrupted; the run may have been started or not, and trying again with --run-id %s is safe", request.RunID)}
	case errors.Is(err, errExists):
		return usagef("run %s exists already and was not started again; see starter follow %s --tenant %s", request.RunID, request.RunID, request.Tenant)
	case errors.Is(err, db.ErrUnavailable), errors.Is(err, db.ErrNoVault), errors.Is(err, db.ErrKeysDestroyed), errors.Is(err, vault.ErrWrapped):
		// Nothing was sent: there are no keys to seal it with.
		return a.explain(err, request.RunID, request.Tenant)
	case err != nil && unreachable(err):
		return &exit{exitUnreachable, fmt.Sprintf("Temporal did not answer in time; the run may have been started or not, and trying again with --run-id %s is safe", request.RunID)}
	case err != nil:
		return fmt.Errorf("start the run: %w", err)
	}
	view := a.newView()
	view.started(request, a.webUI(request.Tenant, request.RunID))
	if f.detach {
		return nil
	}
	return a.follow(ctx, view, temporal, owner{request.Tenant, request.User}, request.RunID, true)
}

// request builds the run request. Only limits that were given override the
// definition's, so that a given zero is refused and not taken as "no limit".
func (a *app) request(c *cobra.Command, f *runFlags) (agent.RunRequest, error) {
	request, given := f.request, c.Flags().Changed
	var err error
	if request.Message, err = a.message(f.message); err != nil {
		return request, err
	}
	if request.RunID == "" && !given("run-id") {
		if request.RunID, err = newID(); err != nil {
			return request, err
		}
	}
	if request.Conversation == "" && !given("conversation") {
		if request.Conversation, err = newID(); err != nil {
			return request, err
		}
	}
	if given("expect-version") {
		request.ConversationVersion = &f.expectedVersion
	}
	for _, fact := range f.facts {
		key, value, ok := strings.Cut(fact, "=")
		if !ok {
			return request, usagef("--fact must be KEY=VALUE, such as --fact current_service=payment-api")
		}
		f.session.Facts = append(f.session.Facts, agent.ConfirmedFact{Key: key, Value: value})
	}
	if given("fact") || given("forbid") || given("lift") {
		request.Session = &f.session
	}
	var budget agent.BudgetOverride
	if given("max-steps") {
		budget.MaxSteps = &f.maxSteps
	}
	if given("max-tool-calls") {
		budget.MaxToolCalls = &f.maxToolCalls
	}
	if given("max-tokens") {
		budget.MaxTokens = &f.maxTokens
	}
	if given("max-cost") {
		micros, err := parseDollars(f.maxCost)
		if err != nil {
			return request, usagef("--max-cost: %v", err)
		}
		budget.MaxCostMicros = &micros
	}
	if given("timeout") {
		budget.Timeout = &f.timeout
	}
	if budget != (agent.BudgetOverride{}) {
		request.Budget = &budget
	}
	return request, nil
}

// newID makes identifiers that sort by time.
func newID() (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("make an identifier: %w", err)
	}
	return id.String(), nil
}

// message takes the text from the flag or from standard input, of which no more
// is read than a run accepts.
func (a *app) message(flag string) (string, error) {
	if flag != "" && flag != fromStdin {
		return flag, nil
	}
	if flag == "" && a.inTerminal {
		return "", usagef("there is no message; give --message TEXT, or pipe it into standard input")
	}
	text, err := io.ReadAll(io.LimitReader(a.in, agent.MaxMessageBytes+2))
	if err != nil {
		return "", fmt.Errorf("read the message from standard input: %w", err)
	}
	// The line end that echo and editors add is not part of the question.
	message := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if len(message) > agent.MaxMessageBytes {
		return "", usagef("invalid run request: message on standard input has more than %d bytes; store large material elsewhere and let a tool read it", agent.MaxMessageBytes)
	}
	return message, nil
}

// parseDollars reads an amount exactly: 0.05 is 50,000 micro-dollars.
func parseDollars(text string) (int64, error) {
	errForm := fmt.Errorf("%q is not an amount of dollars such as 0.05, with at most 6 decimals", text)
	number, negative := strings.CutPrefix(strings.TrimPrefix(text, "$"), "-")
	whole, fraction, dot := strings.Cut(number, ".")
	if whole == "" && fraction == "" || dot && fraction == "" || len(fraction) > 6 || strings.Trim(whole+fraction, "0123456789") != "" {
		return 0, errForm
	}
	micros, err := strconv.ParseInt(whole+fraction+strings.Repeat("0", 6-len(fraction)), 10, 64)
	if err != nil || micros == math.MaxInt64 {
		return 0, errForm
	}
	if negative {
		micros = -micros
	}
	return micros, nil
}
