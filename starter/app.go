package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/vault"
)

// Exit codes, as documented in main.go.
const (
	exitOK          = 0
	exitRunFailed   = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitCanceled    = 4
	exitInterrupted = 130
)

// exit is an error with an exit code. An empty text prints nothing.
type exit struct {
	code int
	text string
}

// Error returns the text for the person.
func (e *exit) Error() string { return e.text }

func usagef(format string, args ...any) error {
	return &exit{exitUsage, fmt.Sprintf(format, args...)}
}

// reader is what the starter reads from the database; *db.DB implements it.
type reader interface {
	ListRuns(ctx context.Context, filter db.RunFilter) ([]db.RunSummary, error)
	ShowRun(ctx context.Context, scope agent.Scope, runID string) (db.RunReport, error)
	Progress(ctx context.Context, scope agent.Scope, runID string, fromStep int) (db.RunReport, error)
	ToolCall(ctx context.Context, scope agent.Scope, runID, callID string) (db.Run, db.ToolCall, error)
	PlanState(ctx context.Context, tenant, runID, callID string, revision int) (db.PlanState, error)
	Session(ctx context.Context, scope agent.Scope, conversation string) (db.SessionState, error)
	ReadResult(ctx context.Context, scope agent.Scope, runID, resultID string, offset, limit int64) ([]byte, int64, error)
	RunMemories(ctx context.Context, tenant, user, runID string) ([]db.MemoryInfluence, error)
	Close()
}

// engine is what the starter asks Temporal for.
type engine interface {
	// Start starts the run's workflow; errExists if the run ID was used before.
	Start(ctx context.Context, request agent.RunRequest) error
	// Result waits for the end of the workflow. The error is errUnknownRun, a
	// *workflowFailed, or a failed connection.
	Result(ctx context.Context, workflowID string) (agent.RunResult, error)
	// Begin starts the workflow of a job. One that is going on already is errExists
	// unless the job may be shared.
	Begin(ctx context.Context, j job) error
	// Await waits for the end of a workflow and reads its result into result. The
	// errors are those of Result.
	Await(ctx context.Context, workflowID string, result any) error
	// Details are the text that a running workflow shows in the Web UI.
	Details(ctx context.Context, workflowID string) (string, error)
	// State asks the workflow where it stands.
	State(ctx context.Context, workflowID string) (agent.RunView, error)
	// Cancel asks the workflow to end; errUnknownRun if none is running.
	Cancel(ctx context.Context, workflowID string) error
	// SignalWorkflow sends a signal; errUnknownRun if no such workflow is running.
	// It makes an engine an approval.Signaler.
	SignalWorkflow(ctx context.Context, workflowID, runID, signalName string, arg any) error
	// Served reports whether there is a worker that takes work.
	Served(ctx context.Context) (bool, error)
	Close()
}

var (
	errExists     = errors.New("the run exists already")
	errUnknownRun = errors.New("no such run")
)

// workflowFailed is a workflow that ended without a result. It wraps Temporal's
// error that says how.
type workflowFailed struct{ cause error }

// Error returns the cause's text.
func (e *workflowFailed) Error() string { return e.cause.Error() }

// Unwrap returns the cause.
func (e *workflowFailed) Unwrap() error { return e.cause }

// app is one invocation.
type app struct {
	in          io.Reader
	out, errOut io.Writer
	// inTerminal says that a person types, so nothing is waited for on in.
	inTerminal bool
	color      bool
	openReader func(ctx context.Context, settings config.Config) (reader, error)
	openEngine func(ctx context.Context, settings config.Config) (engine, error)
	openOffice func(ctx context.Context, settings config.Config) (office, error)
	// openRecords and openKeys open what operators change, and what the codec
	// server serves.
	openRecords func(ctx context.Context, settings config.Config) (records, error)
	openKeys    func(ctx context.Context, settings config.Config) (keySource, error)
	// openMemories opens long-term memory.
	openMemories func(ctx context.Context, settings config.Config) (memories, error)
	// lookupEnv is nil for the real environment.
	lookupEnv func(string) (string, bool)
	// pollEvery and quietFor are zero for the usual times.
	pollEvery, quietFor time.Duration

	configFile string
	json       bool
	// canceling says that a cancellation was requested and is waited for.
	canceling bool
	settings  config.Config
}

func (a *app) main(ctx context.Context, args []string) int {
	root := a.command()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.errOut)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	var ended *exit
	switch {
	case errors.As(err, &ended):
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		// What was sent says so itself.
		ended = &exit{exitInterrupted, "interrupted"}
	default:
		ended = &exit{codeOf(ctx, err), err.Error()}
	}
	if ended.text != "" {
		fmt.Fprintln(a.errOut, "Error:", printable(ended.text))
	}
	return ended.code
}

// codeOf sorts errors that no command gave a code.
func codeOf(ctx context.Context, err error) int {
	var (
		request *agent.RequestError
		schema  *db.SchemaError
	)
	switch {
	case errors.As(err, &request), errors.Is(err, db.ErrNotFound), errors.Is(err, errUnknownRun), errors.Is(err, errExists),
		errors.Is(err, db.ErrKeysDestroyed), errors.Is(err, db.ErrNoVault), errors.Is(err, vault.ErrWrapped):
		return exitUsage
	case errors.As(err, &schema), errors.Is(err, db.ErrUnavailable), unreachable(err):
		return exitUnreachable
	case ctx.Err() != nil:
		return exitInterrupted
	}
	return exitRunFailed
}

func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "starter",
		Short: "Starts agent runs and shows them",
		Long: "Starts agent runs and shows them, takes decisions about their writes, and keeps conversations,\n" +
			"memory and keys. What shows or sends content needs FAIRLEAD_ENCRYPTION_KEY.\n\n" +
			"Exit codes: 0 the run succeeded or the decision was accepted, 1 it failed or was refused,\n" +
			"2 wrong usage or a request that cannot become a run, 3 Temporal or PostgreSQL cannot be\n" +
			"reached or nobody answered in time, 4 the run was canceled, 130 interrupted.",
		SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		Args:              cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("there is no command %q; see starter --help", args[0])
			}
			return c.Help()
		},
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			if c.Parent() == nil {
				return nil
			}
			settings, err := config.Load(config.Source{File: a.configFile, LookupEnv: a.lookupEnv})
			if err != nil {
				return &exit{exitUsage, err.Error()}
			}
			a.settings = settings
			return nil
		},
	}
	root.PersistentFlags().StringVar(&a.configFile, "config", "", "file of settings (default fairlead.yaml, if there is one)")
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON instead of text")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usagef("%v; see %s --help", err, c.CommandPath())
	})
	root.AddCommand(a.runCommand(), a.followCommand(), a.showCommand(), a.sessionCommand(), a.listCommand(), a.cancelCommand(),
		a.pendingCommand(), a.decideCommand(approval.Approve), a.decideCommand(approval.Decline),
		a.unsettledCommand(), a.settleCommand(), a.approvalKeyCommand(),
		a.snapshotCommand(), a.snapshotsCommand(), a.rollbackCommand(), a.memoryCommand(),
		a.encryptionKeyCommand(), a.keysCommand(), a.codecServerCommand())
	return root
}

// noArguments points at the usual mistake: a message without its flag.
func noArguments(hint string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return usagef("%s takes no arguments%s; see %s --help", c.CommandPath(), hint, c.CommandPath())
	}
}

// oneRun checks the RUN_ID argument.
func oneRun(c *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("%s needs one RUN_ID, got %d arguments", c.CommandPath(), len(args))
	}
	if !agent.ValidID(args[0]) {
		return usagef("the RUN_ID must be 1 to 128 ASCII letters, digits or . _ : @ -")
	}
	return nil
}

// owner is whose runs are read.
type owner struct{ tenant, user string }

func (o *owner) flags(c *cobra.Command) {
	c.Flags().StringVar(&o.tenant, "tenant", defaultTenant, "tenant that owns the run")
	c.Flags().StringVar(&o.user, "user", "", "only if the run belongs to this user (default: any, the operator's view)")
}

func (o *owner) check() error {
	if !agent.ValidID(o.tenant) || o.user != "" && !agent.ValidID(o.user) {
		return usagef("--tenant and --user must be 1 to 128 ASCII letters, digits or . _ : @ -")
	}
	return nil
}

// scope is whose runs are looked for, in every environment.
func (o *owner) scope() agent.Scope { return agent.Scope{Tenant: o.tenant, User: o.user} }

// requireDatabase refuses a command that cannot do without.
func (a *app) requireDatabase() error {
	if err := a.settings.RequireDatabase(); err != nil {
		return &exit{exitUsage, err.Error()}
	}
	return nil
}

// requireContent refuses a command that shows or sends content, which is
// encrypted.
func (a *app) requireContent() error {
	if err := a.requireDatabase(); err != nil {
		return err
	}
	if err := a.settings.RequireEncryption(); err != nil {
		return &exit{exitUsage, err.Error()}
	}
	return nil
}

// database opens the reader of a command that cannot do without.
func (a *app) database(ctx context.Context) (reader, error) {
	if err := a.requireDatabase(); err != nil {
		return nil, err
	}
	return a.openReader(ctx, a.settings)
}

// mayTouch refuses a run that is not the user's whom the command names. Without
// one the command is an operator's, for the whole tenant.
func (a *app) mayTouch(ctx context.Context, o owner, runID string) error {
	if o.user == "" {
		return nil
	}
	database, err := a.database(ctx)
	if err != nil {
		return err
	}
	defer database.Close()
	if _, err := database.Progress(ctx, o.scope(), runID, 0); err != nil {
		return a.explain(err, runID, o.tenant)
	}
	return nil
}

// webUI is the run's page in the Temporal Web UI.
func (a *app) webUI(tenant, runID string) string {
	return fmt.Sprintf("%s/namespaces/%s/workflows/%s", strings.TrimRight(a.settings.UIURL, "/"),
		url.PathEscape(a.settings.Temporal.Namespace), url.PathEscape(agent.WorkflowID(tenant, runID)))
}

// notice tells the person something that is no result.
func (a *app) notice(format string, args ...any) {
	fmt.Fprintln(a.errOut, printable(fmt.Sprintf(format, args...)))
}

// Classes of SQLSTATE that say why a server lets nobody in.
const (
	classDatabase = "3D"
	classLogin    = "28"
)

// unavailable says why the database takes no work, as far as the server told.
func unavailable(err error, settings config.Config) string {
	var stored *db.Error
	url, variable := settings.Redacted().Database.URL, config.Variable("database.url")+", else DATABASE_URL"
	switch errors.As(err, &stored); {
	case stored != nil && strings.HasPrefix(stored.Code, classDatabase):
		return fmt.Sprintf("there is no such database: %s, which %s names; worker migrate brings an empty one up to date", url, variable)
	case stored != nil && strings.HasPrefix(stored.Code, classLogin):
		return fmt.Sprintf("PostgreSQL refuses the login of %s, which %s names", url, variable)
	}
	return fmt.Sprintf("PostgreSQL cannot be reached at %s; is it running? (%s names another)", url, variable)
}

// explain turns a failed read into what a person can act on.
func (a *app) explain(err error, runID, tenant string) error {
	switch {
	case errors.Is(err, db.ErrNotFound):
		return usagef("there is no run %s in tenant %s that this user may see; see starter list --tenant %s", runID, tenant, tenant)
	case errors.Is(err, db.ErrUnavailable):
		return &exit{exitUnreachable, unavailable(err, a.settings)}
	case errors.Is(err, db.ErrKeysDestroyed):
		return usagef("the user's keys were destroyed: nobody can read the user's content any more, and no run can be started for the user (starter show without --content shows what is left)")
	case errors.Is(err, vault.ErrWrapped):
		return usagef("this program's key-encryption key opens none of the keys in the database: set %s to the one that the workers have (%v)", config.Variable("encryption.key"), vault.Cause(err))
	}
	return err
}
