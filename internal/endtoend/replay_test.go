package endtoend

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/workflows"
)

var record = flag.String("record", "", "write the histories of real runs to this new `folder` of testdata/histories")

var machine = regexp.MustCompile(`"(identity|name)": ?"(?:[^"]*/[0-9]+|[0-9]+@[^"]*|[^":]+:[0-9a-f-]{36})"`)

const histories = "testdata/histories"

// TestRecordHistories writes one history for each reason, and one that
// continues as new: `make record FOLDER=v2`, when the workflow changes on
// purpose.
func TestRecordHistories(t *testing.T) {
	if *record == "" {
		// The recorded files are replayed below; recording is not a check.
		return
	}
	// What was recorded stays: it stands for runs that are under way somewhere.
	folder := filepath.Join(histories, *record)
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	things := newThings()
	w := newWorld(t).withWriter(things, nil)
	save := func(name string, events []*history.HistoryEvent) {
		data, err := protojson.Marshal(&history.History{Events: events})
		if err != nil {
			t.Fatal(err)
		}
		// Which machine recorded a history is nobody's business.
		data = machine.ReplaceAll(data, []byte(`"$1":"recorder"`))
		if err := os.WriteFile(filepath.Join(folder, name+".json"), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range endings {
		if e.during != "" && e.during != "approve" {
			continue
		}
		req := e.request()
		run := w.start(req)
		if e.during == "approve" {
			plan, nonce := w.planned(req)
			w.signal(req, w.sign(claims(req, plan, nonce, nil)))
		}
		w.wait(run)
		save(strings.NewReplacer(", ", "-", " ", "-").Replace(e.name()), w.events(req, ""))
	}
	for name, decide := range map[string]func(agent.RunRequest, approval.Plan){
		"write-declined": func(req agent.RunRequest, plan approval.Plan) {
			w.signal(req, w.token(bob, plan, approval.Decline).Text)
		},
		"write-refused": func(req agent.RunRequest, plan approval.Plan) {
			w.signal(req, "no token")
			w.awaitRefusals(req, 1)
			token := w.token(bob, plan, approval.Approve)
			w.signal(req, token.Text)
			w.signal(req, token.Text)
		},
		"write-stale": func(req agent.RunRequest, plan approval.Plan) {
			old := w.token(bob, plan, approval.Approve)
			things.touch("write-stale")
			w.signal(req, old.Text)
			w.until("it is planned anew", func() bool { return len(w.show(req).Plans) == 2 })
			w.approve(req, bob)
		},
		"write-expired":  func(agent.RunRequest, approval.Plan) {},
		"write-canceled": func(req agent.RunRequest, _ approval.Plan) { w.cancelInUI(agent.WorkflowID(req.Tenant, req.RunID)) },
	} {
		req := change(changeArgs{Thing: name, To: "on"})
		if name == "write-expired" {
			req.Agent = "hasty"
		}
		run := w.start(req)
		decide(req, w.pending(req, bob))
		w.wait(run)
		save(name, w.events(req, ""))
	}
	req := request("parallel")
	w.run(req)
	save("parallel", w.events(req, ""))

	long := request("long")
	long.Agent = "looker-local" // a third of the events
	run := w.start(long)
	first := run.GetRunID()
	w.wait(run)
	ids := w.chain(long, first)
	save("long-first", w.events(long, ids[0]))
	save("long-last", w.events(long, ids[len(ids)-1]))

	slow := request("slow")
	canceled := w.start(slow)
	w.until("the model is called", func() bool { return w.attempts(slow) > 0 })
	if err := w.client.CancelWorkflow(w.ctx, canceled.GetID(), ""); err != nil {
		t.Fatal(err)
	}
	w.wait(canceled)
	save("canceled", w.events(slow, ""))
}

func replay(t *testing.T, path string, run any) error {
	t.Helper()
	replayer := worker.NewWorkflowReplayer()
	replayer.RegisterWorkflowWithOptions(run, workflow.RegisterOptions{Name: agent.WorkflowAgentRun})
	return replayer.ReplayWorkflowHistoryFromJSONFile(silent, path)
}

// TestReplay replays recorded histories with the workflow as it is now: a
// change that old runs could not follow fails here (OPS-2).
func TestReplay(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob(filepath.Join(histories, "*", "*.json"))
	if err != nil || len(paths) < 15 {
		t.Fatalf("%d histories, %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(strings.TrimPrefix(path, histories+"/"), func(t *testing.T) {
			t.Parallel()
			if err := replay(t, path, workflows.AgentRun); err != nil {
				t.Error(err)
			}
		})
	}
}

// mutated is AgentRun with one change that no old run can follow: a timer
// before everything else.
func mutated(ctx workflow.Context, req agent.RunRequest, carried *workflows.Carried) (agent.RunResult, error) {
	if err := workflow.Sleep(ctx, 1); err != nil {
		return agent.RunResult{}, err
	}
	return workflows.AgentRun(ctx, req, carried)
}

// TestReplayCanFail shows that the check above sees a changed workflow.
func TestReplayCanFail(t *testing.T) {
	t.Parallel()
	path := filepath.Join(histories, "v1", "final.json")
	if err := replay(t, path, workflows.AgentRun); err != nil {
		t.Fatal(err)
	}
	if err := replay(t, path, mutated); err == nil {
		t.Fatal("a workflow with another first step replays without an error")
	}
}
