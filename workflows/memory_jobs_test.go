package workflows_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/workflows"
)

// TestERASE2Waits: an erasure waits for what stands in its way and then goes on;
// its receipt is the last step's.
func TestERASE2Waits(t *testing.T) {
	t.Parallel()
	steps := []agent.ErasureStep{
		{Receipt: agent.ErasureReceipt{Records: 100}},
		{Blocked: "open_run"},
		{Blocked: "open_run"},
		{Receipt: agent.ErasureReceipt{Records: 200}},
		{Blocked: "open_run"},
		{Done: true, Receipt: agent.ErasureReceipt{ID: "e-1", Records: 250, KeysDestroyed: true}},
	}
	asked := 0
	m := &memories{erase: func(in agent.EraseInput) (agent.ErasureStep, error) {
		if in != (agent.EraseInput{ID: "e-1", Tenant: "acme", User: "ann", By: "ann"}) {
			t.Errorf("erase %+v", in)
		}
		asked++
		return steps[asked-1], nil
	}}
	env := m.environment(t)
	began := env.Now()
	env.ExecuteWorkflow(agent.WorkflowEraseSubject, agent.EraseInput{ID: "e-1", Tenant: "acme", User: "ann", By: "ann"})
	var receipt agent.ErasureReceipt
	if err := env.GetWorkflowResult(&receipt); err != nil || receipt.Records != 250 || !receipt.KeysDestroyed || asked != 6 {
		t.Errorf("receipt %+v after %d steps, %v", receipt, asked, err)
	}
	// 5 s and 10 s, and 5 s again after a step that went on.
	if took := env.Now().Sub(began).Round(time.Second); took != 20*time.Second {
		t.Errorf("took %s", took)
	}
}

// TestERASE2BlockedForTooLong: it does not wait for ever, and names what it
// waited for.
func TestERASE2BlockedForTooLong(t *testing.T) {
	t.Parallel()
	m := &memories{erase: func(agent.EraseInput) (agent.ErasureStep, error) { return agent.ErasureStep{Blocked: "open_run"}, nil }}
	var carried *workflows.ErasureCarried
	in := agent.EraseInput{ID: "e-1", Tenant: "acme", User: "ann", By: "ann"}
	var waited time.Duration
	histories := 0
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for ; ; histories++ {
		env := m.environment(t)
		env.SetStartTime(now)
		env.ExecuteWorkflow(agent.WorkflowEraseSubject, in, carried)
		waited += env.Now().Sub(now)
		now = env.Now()
		var next *workflow.ContinueAsNewError
		err := env.GetWorkflowError()
		if errors.As(err, &next) {
			if err := decode(next, &in, &carried); err != nil {
				t.Fatal(err)
			}
			continue
		}
		var typed *temporal.ApplicationError
		if !errors.As(err, &typed) || typed.Type() != agent.ErrorErasureBlocked || !strings.Contains(err.Error(), "open_run") {
			t.Fatalf("error %v", err)
		}
		break
	}
	if waited < 30*24*time.Hour || waited > 31*24*time.Hour || histories == 0 {
		t.Errorf("waited %s in %d histories", waited, histories+1)
	}
}

func TestERASE2Forget(t *testing.T) {
	t.Parallel()
	asked := 0
	m := &memories{forget: func(in agent.ForgetInput) (agent.ErasureStep, error) {
		asked++
		return agent.ErasureStep{Done: asked == 3, Receipt: agent.ErasureReceipt{ID: in.ID, Records: asked}}, nil
	}}
	env := m.environment(t)
	env.ExecuteWorkflow(agent.WorkflowForgetMemory, agent.ForgetInput{ID: "f-1", Room: memoryRoom, Record: "r-1", By: "ann"})
	var receipt agent.ErasureReceipt
	if err := env.GetWorkflowResult(&receipt); err != nil || receipt.ID != "f-1" || receipt.Records != 3 {
		t.Errorf("receipt %+v, %v", receipt, err)
	}
	for name, in := range map[string]agent.ForgetInput{
		"no ID": {Room: memoryRoom, By: "ann"}, "nobody": {ID: "f-1", Room: memoryRoom}, "no user": {ID: "f-1", By: "ann"},
	} {
		env := m.environment(t)
		env.ExecuteWorkflow(agent.WorkflowForgetMemory, in)
		var typed *temporal.ApplicationError
		if err := env.GetWorkflowError(); !errors.As(err, &typed) || typed.Type() != agent.ErrorInvalidRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestERASE2Reconcile: rounds until nothing is left; what is due is started, once
// although two rounds list it.
func TestERASE2Reconcile(t *testing.T) {
	t.Parallel()
	rounds := 0
	m := &memories{
		judge: decided(agent.MemoryMerged),
		learn: func(agent.LearnInput) (agent.LearnOutput, error) { return agent.LearnOutput{}, nil },
		reindex: func(agent.ReindexInput) (agent.ReindexOutput, error) {
			return agent.ReindexOutput{Done: true}, nil
		},
	}
	lesson := agent.LearnInput{Run: agent.RunRef{Scope: request().Scope(), RunID: "run-7"}, Room: memoryRoom}
	m.reconcile = func(in agent.ReconcileInput) (agent.ReconcileReport, error) {
		rounds++
		report := agent.ReconcileReport{Tenants: 2, Expired: 1, Residue: 2, Missing: 3, More: rounds < 3, Writes: []agent.MemoryWriteInput{memoryIn}}
		if rounds == 2 {
			report.Lessons, report.Reindex = []agent.LearnInput{lesson}, "small"
		}
		return report, nil
	}
	env := m.environment(t)
	env.ExecuteWorkflow(agent.WorkflowReconcileMemory, agent.ReconcileInput{})
	var report agent.ReconcileReport
	if err := env.GetWorkflowResult(&report); err != nil || report.Tenants != 2 || report.Expired != 3 || report.Residue != 6 || report.Missing != 9 ||
		report.More || len(report.Writes) != 1 || len(report.Lessons) != 1 {
		t.Errorf("report %+v, %v", report, err)
	}
	if got := strings.Join(m.started, ", "); got != "MemoryWrite memory-write~acme~m-1, LearnFromRun learn~acme~run-7, ReindexMemory reindex-memory" {
		t.Errorf("started %s", got)
	}
}

// TestERASE2ReconcileEnds: endless work does not go on in one execution.
func TestERASE2ReconcileEnds(t *testing.T) {
	t.Parallel()
	rounds := 0
	m := &memories{reconcile: func(agent.ReconcileInput) (agent.ReconcileReport, error) {
		rounds++
		return agent.ReconcileReport{More: true}, nil
	}}
	env := m.environment(t)
	env.ExecuteWorkflow(agent.WorkflowReconcileMemory, agent.ReconcileInput{})
	var report agent.ReconcileReport
	if err := env.GetWorkflowResult(&report); err != nil || !report.More || rounds != 20 {
		t.Errorf("%d rounds, %+v, %v", rounds, report, err)
	}
}

func TestLTM6Reindex(t *testing.T) {
	t.Parallel()
	pieces := 0
	m := &memories{reindex: func(in agent.ReindexInput) (agent.ReindexOutput, error) {
		pieces++
		return agent.ReindexOutput{Embedded: 2, Failed: 1, Done: pieces == 203}, nil
	}}
	env := m.environment(t)
	env.ExecuteWorkflow(agent.WorkflowReindexMemory, agent.ReindexInput{Embedder: "small"})
	var next *workflow.ContinueAsNewError
	if err := env.GetWorkflowError(); !errors.As(err, &next) {
		t.Fatalf("error %v", err)
	}
	var in agent.ReindexInput
	var carried *agent.ReindexOutput
	if err := decode(next, &in, &carried); err != nil || in.Embedder != "small" || carried.Embedded != 400 {
		t.Fatalf("carries %+v, %+v, %v", in, carried, err)
	}
	env = m.environment(t)
	env.ExecuteWorkflow(agent.WorkflowReindexMemory, in, carried)
	var total agent.ReindexOutput
	if err := env.GetWorkflowResult(&total); err != nil || total != (agent.ReindexOutput{Embedded: 406, Failed: 1, Done: true}) {
		t.Errorf("total %+v, %v", total, err)
	}
}

// TestLTM7EmbedderDown: a re-index that cannot go on is a result, undone.
func TestLTM7EmbedderDown(t *testing.T) {
	t.Parallel()
	m := &memories{reindex: func(agent.ReindexInput) (agent.ReindexOutput, error) {
		return agent.ReindexOutput{}, errors.New("embedder unavailable")
	}}
	env := m.environment(t)
	began := env.Now()
	env.ExecuteWorkflow(agent.WorkflowReindexMemory, agent.ReindexInput{Embedder: "small"})
	var total agent.ReindexOutput
	if err := env.GetWorkflowResult(&total); err != nil || total.Done || env.Now().Sub(began) > 2*time.Hour {
		t.Errorf("total %+v after %s, %v", total, env.Now().Sub(began), err)
	}
}
