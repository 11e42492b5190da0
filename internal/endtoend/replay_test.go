package endtoend

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/proxy"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db/dbtest"
	"github.com/fairlead/fairlead/internal/codec"
	"github.com/fairlead/fairlead/internal/rig"
	"github.com/fairlead/fairlead/model/scripted"
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
	w := newWorld(t).withWriter(things, func(c *rig.Config) {
		defs, err := keepers()
		if err != nil {
			t.Fatal(err)
		}
		c.Model, c.Definitions, c.Tools = scripted.New(keep), append(c.Definitions, defs...), append(c.Tools, bearInMind())
	})
	keys := codec.DataConverter(w.db)
	save := func(name string, events []*history.HistoryEvent) {
		h := &history.History{Events: events}
		// The keys go with the database; the test that replays seals again.
		convert(t, h, func(p *common.Payload) (*common.Payload, error) {
			var plain converter.RawValue
			err := keys.FromPayload(p, &plain)
			return plain.Payload(), err
		})
		data, err := protojson.Marshal(h)
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

	// A conversation that is summarized: the run that begins it, and the summary.
	for range 3 {
		req = request("final")
		req.Agent, req.Conversation = "keeper", "talk-"+w.queue
		w.run(req)
	}
	w.summarizerRests(req)
	save("summarized", w.events(req, ""))
	save("summary", w.eventsOf(agent.SummarizeWorkflowID(req.Tenant, req.Conversation), ""))

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

// replay replays a history with run in the place of AgentRun. Nil is the SDK's
// data converter.
func replay(t *testing.T, converter converter.DataConverter, recorded *history.History, run any) error {
	t.Helper()
	replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{DataConverter: converter})
	if err != nil {
		t.Fatal(err)
	}
	replayer.RegisterWorkflowWithOptions(run, workflow.RegisterOptions{Name: agent.WorkflowAgentRun})
	replayer.RegisterWorkflowWithOptions(workflows.SummarizeConversation, workflow.RegisterOptions{Name: agent.WorkflowSummarize})
	return replayer.ReplayWorkflowHistory(silent, recorded)
}

// recorded reads a history from a file.
func recorded(t *testing.T, path string) *history.History {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	h, err := client.HistoryFromJSON(bytes.NewReader(data), client.HistoryJSONOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// convert makes other payloads of all in a history but search attributes.
func convert(t *testing.T, h *history.History, each func(*common.Payload) (*common.Payload, error)) {
	t.Helper()
	err := proxy.VisitPayloads(t.Context(), h, proxy.VisitPayloadsOptions{
		SkipSearchAttributes: true,
		Visitor: func(_ *proxy.VisitPayloadsContext, payloads []*common.Payload) (converted []*common.Payload, err error) {
			for _, p := range payloads {
				q, err := each(p)
				if err != nil {
					return nil, err
				}
				converted = append(converted, q)
			}
			return converted, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestReplay replays recorded histories with the workflow as it is now: a
// change that old runs could not follow fails here (OPS-2). Recorded are plain
// histories, as versions before encryption wrote them; a worker with keys replays
// them as they are and sealed.
func TestReplay(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob(filepath.Join(histories, "*", "*.json"))
	if err != nil || len(paths) < 15 {
		t.Fatalf("%d histories, %v", len(paths), err)
	}
	sealing := codec.DataConverter(dbtest.New(t))
	t.Run("recorded", func(t *testing.T) {
		for _, path := range paths {
			t.Run(strings.TrimPrefix(path, histories+"/"), func(t *testing.T) {
				t.Parallel()
				if err := replay(t, nil, recorded(t, path), workflows.AgentRun); err != nil {
					t.Error("without keys:", err)
				}
				if err := replay(t, sealing, recorded(t, path), workflows.AgentRun); err != nil {
					t.Error("with keys:", err)
				}
				h := recorded(t, path)
				sealed := 0
				convert(t, h, func(p *common.Payload) (*common.Payload, error) {
					q, err := sealing.ToPayload(converter.NewRawValue(p))
					if string(q.GetMetadata()[converter.MetadataEncoding]) == codec.Encoding {
						sealed++
					}
					return q, err
				})
				if err := replay(t, sealing, h, workflows.AgentRun); err != nil || sealed == 0 {
					t.Errorf("with %d payloads sealed: %v", sealed, err)
				}
			})
		}
	})
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
	if err := replay(t, nil, recorded(t, path), workflows.AgentRun); err != nil {
		t.Fatal(err)
	}
	if err := replay(t, nil, recorded(t, path), mutated); err == nil {
		t.Fatal("a workflow with another first step replays without an error")
	}
}
