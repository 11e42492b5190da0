package host

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.uber.org/zap"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/scripted"
	"github.com/fairlead/fairlead/tool"
)

// nowhere is a database that nobody listens at: opening is lazy.
func nowhere(t *testing.T) *db.DB {
	t.Helper()
	database, err := db.Open(t.Context(), "postgres://u@127.0.0.1:1/none", db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(database.Close)
	return database
}

func someDefinition(version, modelName string, tools ...string) definition.Definition {
	return definition.Definition{
		Name: "helper", Version: version, System: "Help.", Model: modelName, Tools: tools, Environments: []string{"test"},
		Budget: definition.Budget{MaxSteps: 3, MaxToolCalls: 3, MaxTokens: 10000, Timeout: time.Minute},
	}
}

func someOptions(definitions ...definition.Definition) Options {
	return Options{Definitions: definitions, Models: map[string]model.Model{"scripted": scripted.New(nil)}, Tools: []tool.Tool{lookup{}}}
}

type lookup struct{}

func (lookup) Spec() tool.Spec {
	return tool.Spec{Name: "lookup", Version: "1", Description: "Looks.", Parameters: json.RawMessage(`{"type":"object"}`), Risk: tool.Read, Source: "test"}
}

func (lookup) Execute(context.Context, tool.Invocation) (tool.Result, error) {
	return tool.Result{}, nil
}

// writer is a tool that changes something.
func writer(t *testing.T) tool.Tool {
	t.Helper()
	spec := lookup{}.Spec()
	spec.Name, spec.Risk = "change", tool.Write
	made, err := tool.NewWrite(spec, tool.WriteFuncs[struct{}]{
		Prepare: func(context.Context, tool.Invocation, struct{}) (tool.Plan, error) {
			return tool.Plan{Resource: "thing", Summary: "Changes it."}, nil
		},
		Execute: func(context.Context, tool.Invocation, struct{}) (tool.Result, error) { return tool.Text("done"), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// A worker that knows a public key serves agents that write.
func TestWireAdmitsWrites(t *testing.T) {
	t.Parallel()
	options := someOptions(someDefinition("1", "scripted", "change"))
	options.Tools = append(options.Tools, writer(t))
	settings := config.Config{Approval: config.Approval{PublicKeys: []string{approval.NewKey().Public()}}}
	if _, err := wire(options, settings, nowhere(t), zap.NewNop()); err != nil {
		t.Fatal(err)
	}
}

// TestEveryActivityIsRegistered proves that what workflows call by name has an
// implementation of the right signature.
func TestEveryActivityIsRegistered(t *testing.T) {
	t.Parallel()
	database := nowhere(t)
	w, err := wire(someOptions(someDefinition("1", "scripted", "lookup")), config.Config{}, database, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	runs, err := activities.New(activities.Config{Store: w.store, Memory: w.memory, Models: w.models, Tools: w.tools, Definitions: w.definitions})
	if err != nil {
		t.Fatal(err)
	}
	registered := recorder{}
	runs.Register(registered)

	signature := map[string]reflect.Type{
		agent.ActivityBeginRun:        reflect.TypeFor[func(context.Context, agent.BeginRunInput) (agent.BeginRunOutput, error)](),
		agent.ActivityNextAction:      reflect.TypeFor[func(context.Context, agent.NextActionInput) (agent.Action, error)](),
		agent.ActivityReadTool:        reflect.TypeFor[func(context.Context, agent.ReadToolInput) (agent.ToolOutcome, error)](),
		agent.ActivityPrepareWrite:    reflect.TypeFor[func(context.Context, agent.PrepareWriteInput) (agent.PreparedWrite, error)](),
		agent.ActivityCommitWrite:     reflect.TypeFor[func(context.Context, agent.CommitWriteInput) (agent.WriteOutcome, error)](),
		agent.ActivityResolveWrite:    reflect.TypeFor[func(context.Context, agent.ResolveWriteInput) (agent.WriteOutcome, error)](),
		agent.ActivityExpirePlan:      reflect.TypeFor[func(context.Context, agent.ExpirePlanInput) (agent.WriteOutcome, error)](),
		agent.ActivityRefuseApprovals: reflect.TypeFor[func(context.Context, agent.RefuseApprovalsInput) error](),
		agent.ActivityEndRun:          reflect.TypeFor[func(context.Context, agent.EndRunInput) (agent.EndRunOutput, error)](),
		agent.ActivitySummarize:       reflect.TypeFor[func(context.Context, agent.SummarizeInput) (agent.SummarizeOutput, error)](),
		agent.ActivityRecall:          reflect.TypeFor[func(context.Context, agent.RecallInput) (agent.RecallOutput, error)](),
		agent.ActivityProposeMemory:   reflect.TypeFor[func(context.Context, agent.MemoryWriteInput) (agent.MemoryVerdict, error)](),
		agent.ActivityJudgeMemory:     reflect.TypeFor[func(context.Context, agent.MemoryWriteInput) (agent.MemoryVerdict, error)](),
		agent.ActivitySettleMemory:    reflect.TypeFor[func(context.Context, agent.SettleMemoryInput) (agent.SettledMemory, error)](),
		agent.ActivityLearn:           reflect.TypeFor[func(context.Context, agent.LearnInput) (agent.LearnOutput, error)](),
		agent.ActivityForget:          reflect.TypeFor[func(context.Context, agent.ForgetInput) (agent.ErasureStep, error)](),
		agent.ActivityErase:           reflect.TypeFor[func(context.Context, agent.EraseInput) (agent.ErasureStep, error)](),
		agent.ActivityReconcile:       reflect.TypeFor[func(context.Context, agent.ReconcileInput) (agent.ReconcileReport, error)](),
		agent.ActivityReindex:         reflect.TypeFor[func(context.Context, agent.ReindexInput) (agent.ReindexOutput, error)](),
	}
	for _, name := range agent.Activities() {
		want, ok := signature[name]
		if !ok {
			t.Errorf("this test knows no signature of %s: add it", name)
			continue
		}
		if got := registered[name]; got != want {
			t.Errorf("%s is registered as %v, want %v", name, got, want)
		}
	}
	if len(registered) != len(agent.Activities()) {
		t.Errorf("registered are %v, package agent lists %v", registered, agent.Activities())
	}
}

type recorder map[string]reflect.Type

func (r recorder) RegisterActivityWithOptions(a any, options activity.RegisterOptions) {
	r[options.Name] = reflect.TypeOf(a)
}

func TestWireRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken.yaml")
	if err := os.WriteFile(broken, []byte("models: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	writing := someOptions(someDefinition("1", "scripted", "change"))
	writing.Tools = append(writing.Tools, writer(t))
	brokenPolicies := someOptions(someDefinition("1", "scripted"))
	brokenPolicies.Policies = fstest.MapFS{"a.cedar": {Data: []byte("permit (")}}
	for name, test := range map[string]struct {
		options  Options
		settings config.Config
		want     string
	}{
		"no definition":       {someOptions(), config.Config{}, "no agent definition"},
		"unknown tool":        {someOptions(someDefinition("1", "scripted", "lookup", "restart")), config.Config{}, "does not have: restart"},
		"nobody can confirm":  {writing, config.Config{}, "lists change, which writes"},
		"no policies dir":     {someOptions(someDefinition("1", "scripted")), config.Config{Policies: filepath.Join(dir, "absent")}, "FAIRLEAD_POLICIES"},
		"broken policies":     {brokenPolicies, config.Config{}, "FAIRLEAD_POLICIES"},
		"broken key":          {someOptions(someDefinition("1", "scripted")), config.Config{Approval: config.Approval{PublicKeys: []string{"x"}}}, "FAIRLEAD_APPROVAL_PUBLIC_KEYS"},
		"unknown model":       {someOptions(someDefinition("1", "gpt-0")), config.Config{}, "unknown model"},
		"no provider":         {someOptions(someDefinition("1", "gpt-4.1")), config.Config{}, "not configured"},
		"bad override":        {someOptions(someDefinition("1", "scripted")), config.Config{Model: "gpt-0"}, "FAIRLEAD_MODEL"},
		"no definitions dir":  {someOptions(), config.Config{Definitions: filepath.Join(dir, "absent")}, "FAIRLEAD_DEFINITIONS"},
		"no catalogue":        {someOptions(someDefinition("1", "scripted")), config.Config{Catalogue: filepath.Join(dir, "absent")}, "FAIRLEAD_CATALOGUE"},
		"broken catalogue":    {someOptions(someDefinition("1", "scripted")), config.Config{Catalogue: broken}, "broken.yaml"},
		"openai base url":     {someOptions(someDefinition("1", "scripted")), config.Config{OpenAI: config.OpenAI{BaseURL: "localhost"}}, "OPENAI_BASE_URL"},
		"two of the same":     {someOptions(someDefinition("1", "scripted"), someDefinition("1", "scripted-local")), config.Config{}, "twice"},
		"override, no server": {someOptions(someDefinition("1", "scripted")), config.Config{Model: "openai:llama"}, "not configured"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := wire(test.options, test.settings, nowhere(t), zap.NewNop())
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q in it", err, test.want)
			}
		})
	}
}

func TestOverride(t *testing.T) {
	t.Parallel()
	options := someOptions(someDefinition("1", "scripted"), someDefinition("2", "scripted"))
	w, err := wire(options, config.Config{Model: "openai:llama3.1", OpenAI: config.OpenAI{BaseURL: "http://localhost:11434/v1"}}, nowhere(t), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	all := w.definitions.All()
	if len(all) != 1 || all[0].Model != "openai:llama3.1" || all[0].Version != "2@openai:llama3.1" {
		t.Errorf("served are %+v", all)
	}
	entry, adapter, err := w.models.Resolve("openai:llama3.1")
	if err != nil || entry.Model != "llama3.1" || adapter == nil {
		t.Errorf("resolved %+v, %v, %v", entry, adapter, err)
	}
	if long := overriddenVersion("1", "openai:"+strings.Repeat("é", 200)); !agent.ValidID(long) {
		t.Errorf("version %q is no identifier", long)
	}
}

func TestOwnAdapterWins(t *testing.T) {
	t.Parallel()
	own := scripted.New(nil)
	all, err := adapters(Options{Models: map[string]model.Model{"openai": own}}, config.Config{OpenAI: config.OpenAI{APIKey: "k"}})
	if err != nil || all["openai"] != model.Model(own) {
		t.Errorf("got %v, %v", all, err)
	}
}

func TestStopInterceptor(t *testing.T) {
	t.Parallel()
	stopping := make(chan struct{})
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.SetWorkerOptions(worker.Options{Interceptors: []interceptor.WorkerInterceptor{&stopInterceptor{stopping: stopping}}})
	stopped := func(ctx context.Context) (bool, error) {
		select {
		case <-activity.GetWorkerStopChannel(ctx):
			return true, nil
		default:
			return false, nil
		}
	}
	for _, name := range []string{agent.ActivityNextAction, agent.ActivitySummarize, agent.ActivityReadTool} {
		env.RegisterActivityWithOptions(stopped, activity.RegisterOptions{Name: name})
	}
	told := func(name string) (bool, error) {
		value, err := env.ExecuteActivity(name)
		if err != nil {
			return false, err
		}
		var told bool
		return told, value.Get(&told)
	}
	for _, name := range []string{agent.ActivityNextAction, agent.ActivitySummarize, agent.ActivityReadTool} {
		if told, err := told(name); err != nil || told {
			t.Errorf("%s before the stop: told %v, %v", name, told, err)
		}
	}
	close(stopping)
	if told, err := told(agent.ActivityReadTool); err != nil || !told {
		t.Errorf("a read during the stop: told %v, %v", told, err)
	}
	for _, name := range []string{agent.ActivityNextAction, agent.ActivitySummarize} {
		if _, err := told(name); err == nil || !strings.Contains(err.Error(), agent.ErrorHandedBack) {
			t.Errorf("%s, a model call, began during the stop: %v", name, err)
		}
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		arguments []string
		want      int
	}{
		{[]string{"--help"}, 0},
		{[]string{"serve"}, 2},
		{[]string{"run", "now"}, 2},
		{[]string{"run", "--no-such-flag"}, 2},
		{[]string{"run"}, 2},
		{[]string{"run", "--config", "absent.yaml"}, 2},
		{[]string{"migrate", "--config", "absent.yaml"}, 2},
	} {
		c := command(func() (Options, error) {
			if !slices.Contains(test.arguments, "--config") {
				return Options{}, errors.New("the tools cannot be built")
			}
			return Options{}, nil
		})
		c.SetArgs(test.arguments)
		c.SetOut(new(strings.Builder))
		c.SetErr(new(strings.Builder))
		if err := c.ExecuteContext(t.Context()); exitCode(err) != test.want {
			t.Errorf("%v: exit code %d (%v), want %d", test.arguments, exitCode(err), err, test.want)
		}
	}
	if code := exitCode(errors.New("the worker cannot go on")); code != 1 {
		t.Errorf("a fatal error gives %d, want 1", code)
	}
}

func TestMissingSearchAttributesAreNamed(t *testing.T) {
	t.Parallel()
	have := map[string]enums.IndexedValueType{}
	for _, a := range searchAttributes {
		have[a.name] = a.kind
	}
	if err := missingAttributes("default", have); err != nil {
		t.Fatalf("all are there: %v", err)
	}
	delete(have, agent.SearchTenant)
	have[agent.SearchStep] = enums.INDEXED_VALUE_TYPE_KEYWORD
	err := missingAttributes("default", have)
	if err == nil || !strings.Contains(err.Error(), "FairleadTenant (Keyword), FairleadStep (Int)") {
		t.Fatalf("got %v", err)
	}
}

func TestListedModelKeepsItsPrice(t *testing.T) {
	t.Parallel()
	entry, listed := findModel("openai:gpt-4.1-mini", model.DefaultCatalogue())
	if !listed || entry.Name != "gpt-4.1-mini" || !entry.Priced() {
		t.Fatalf("got %+v, %t", entry, listed)
	}
}
