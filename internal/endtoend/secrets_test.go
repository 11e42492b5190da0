package endtoend

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/history/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db/dbtest"
)

// programs holds what is built for the tests; TestMain removes it.
var programs string

// buildStarter builds the starter once.
var buildStarter = sync.OnceValues(func() (program string, err error) {
	if programs, err = os.MkdirTemp("", "fairlead-endtoend-"); err != nil {
		return "", err
	}
	program = filepath.Join(programs, "starter")
	out, err := exec.Command("go", "build", "-o", program, "github.com/fairlead/fairlead/starter").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("build the starter: %w\n%s", err, out)
	}
	return program, err
})

// starter runs the starter as an operator does who wants to see everything, and
// returns what it prints and what it logs.
func (w *world) starter(input string, args ...string) (printed, logged string) {
	w.Helper()
	program, err := buildStarter()
	if err != nil {
		w.Fatal(err)
	}
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(w.ctx, program, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errOut
	cmd.Env = append(os.Environ(), "FAIRLEAD_TASK_QUEUE="+w.queue, "FAIRLEAD_DATABASE_URL="+w.url,
		"FAIRLEAD_ENCRYPTION_KEY="+dbtest.EncryptionKey(w), "FAIRLEAD_LOG_LEVEL=debug")
	if err := cmd.Run(); err != nil {
		w.Fatalf("starter %s: %v\n%s", args[0], err, errOut.String())
	}
	return out.String(), errOut.String()
}

// TestCanaryStaysInside sends secrets through everything that a conversation
// keeps, and searches all that is stored, logged or shown without being asked
// for: a thief of a database, of a backup or of a log, and a reader of the Web UI
// without keys, gets none (CONV-6, OBS-2).
func TestCanaryStaysInside(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	since := w.transaction()
	worker := w.startWatched()
	var conversations []kept
	var logs []string
	var mu sync.Mutex
	t.Run("keep", func(t *testing.T) {
		for _, name := range []string{"keeper", "keeper-local"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := w.in(t)
				k := w.keeps("ann", name, func(req agent.RunRequest) {
					_, logged := w.starter(req.Message, "run", "--agent", req.Agent, "--tenant", req.Tenant, "--user", req.User,
						"--environment", req.Environment, "--conversation", req.Conversation, "--run-id", req.RunID)
					mu.Lock()
					defer mu.Unlock()
					logs = append(logs, logged)
				})
				k.wantReadable(t, w.ctx, w.db)
				mu.Lock()
				defer mu.Unlock()
				conversations = append(conversations, k)
			})
		}
	})
	if t.Failed() {
		return
	}
	backup := w.pgDump()
	texts := map[string]forms{}
	for _, k := range conversations {
		texts["secret of "+k.last.Agent], texts["ID of a run of "+k.last.Agent] = k.forms, formsOf(k.all.RunID)
	}
	own := takeDump(t, w.ctx, w.url, "", texts)
	engine := takeDump(t, w.ctx, w.beside("temporal"), since, texts)
	visible := takeDump(t, w.ctx, w.beside("temporal_visibility"), since, texts)
	_, metrics := worker.get("/metrics")
	for _, k := range conversations {
		secret, id := "secret of "+k.last.Agent, "ID of a run of "+k.last.Agent
		own.wantAbsent(t, "the database", secret, id)
		engine.wantAbsent(t, "Temporal's database", secret, id)
		visible.wantAbsent(t, "Temporal's database of searches", secret, id)
		for what, text := range map[string]string{"a backup": backup, "the worker's log": worker.logged.String()} {
			if text == "" {
				continue // no pg_dump of this version
			}
			if !strings.Contains(text, k.all.RunID) {
				t.Errorf("%s knows nothing of the run, which proves nothing", what)
			}
			if k.in(text) {
				t.Errorf("the secret of %s is in %s", k.last.Agent, what)
			}
		}
		shown, logged := w.starter("", "show", k.all.RunID, "--tenant", k.Tenant)
		if !strings.Contains(shown, k.all.RunID) || k.in(shown+logged+strings.Join(logs, "\n")) {
			t.Errorf("the secret of %s is in what the starter says, or that proves nothing:\n%s", k.last.Agent, shown)
		}
		if !strings.Contains(metrics, "NextAction") || k.in(metrics) {
			t.Errorf("the secret of %s is in the metrics, or they prove nothing", k.last.Agent)
		}
		k.checkTimeline(w)
	}
	if leaks(worker.logged.String()) || leaks(metrics) {
		t.Error("the text of a panic is in the log or the metrics")
	}
}

// checkTimeline searches what Temporal answers about the workflows of k, and the
// Web UI with it. What an operator reads there is readable.
func (k kept) checkTimeline(w *world) {
	w.Helper()
	summary := agent.SummarizeWorkflowID(k.Tenant, k.conversation)
	workflows := map[string]string{
		agent.WorkflowID(k.Tenant, k.all.RunID): "step 1: ", agent.WorkflowID(k.Tenant, k.lost.RunID): "step 1: ",
		agent.WorkflowID(k.Tenant, k.last.RunID): "step 1: ", summary: "summary 1",
	}
	learned := map[string]bool{}
	for _, id := range w.texts("SELECT id FROM memory_candidate WHERE user_id = $1", k.User) {
		learned[agent.MemoryWriteWorkflowID(k.Tenant, id)] = true
	}
	for _, id := range w.texts("SELECT run_id FROM memory_lesson WHERE user_id = $1", k.User) {
		learned[agent.LearnWorkflowID(k.Tenant, id)] = true
	}
	if len(learned) < 2 {
		w.Error("nothing was learned, which proves nothing")
	}
	for workflow := range learned {
		workflows[workflow] = ""
	}
	for workflow, readable := range workflows {
		if strings.HasSuffix(k.last.Agent, "-local") && workflow != summary {
			readable = "" // what is not scheduled has no summary
		}
		var words []string
		for i, event := range w.eventsOf(workflow, "") {
			text, err := protojson.Marshal(event)
			if err != nil {
				w.Fatal(err)
			}
			wire, err := proto.Marshal(event)
			if err != nil {
				w.Fatal(err)
			}
			if k.in(string(text)) || k.in(string(wire)) || k.in(fmt.Sprint(event)) {
				w.Errorf("event %d (%s) of %s holds the secret", i+1, event.EventType, workflow)
			}
			words = append(words, readableWords(event)...)
		}
		if all := strings.Join(words, "\n"); !strings.Contains(all, readable) {
			w.Errorf("nobody can read %q in the timeline of %s:\n%s", readable, workflow, all)
		}
		query := `{"query":{"queryType":"__temporal_workflow_metadata"}}`
		state := strings.Replace(query, "__temporal_workflow_metadata", agent.QueryState, 1)
		answers := map[string]json.RawMessage{
			"the workflow":    w.webUI(http.MethodGet, "/workflows/"+workflow, ""),
			"its history":     w.webUI(http.MethodGet, "/workflows/"+workflow+"/history", ""),
			"its description": w.webUI(http.MethodPost, "/workflows/"+workflow+"/query/__temporal_workflow_metadata", query),
			"the list":        w.webUI(http.MethodGet, "/workflows?query=WorkflowId%3D%22"+workflow+"%22", ""),
		}
		if workflow != summary && !learned[workflow] {
			answers["its state"] = w.webUI(http.MethodPost, "/workflows/"+workflow+"/query/"+agent.QueryState, state)
		}
		for what, answer := range answers {
			if k.in(string(answer)) {
				w.Errorf("the Web UI shows the secret in %s of %s", what, workflow)
			}
			if len(answer) < 100 {
				w.Errorf("the Web UI shows nothing in %s of %s: %s", what, workflow, answer)
			}
		}
	}
}

// texts asks the database for texts as its owner.
func (w *world) texts(query string, args ...any) []string {
	w.Helper()
	rows, err := w.owner.Query(w.ctx, query, args...)
	if err != nil {
		w.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		w.Fatal(err)
	}
	return all
}

// readableWords are the texts of an event's summary and details that need no
// key.
func readableWords(event *history.HistoryEvent) (words []string) {
	for _, p := range []*common.Payload{event.GetUserMetadata().GetSummary(), event.GetUserMetadata().GetDetails()} {
		var text string
		if json.Unmarshal(p.GetData(), &text) == nil {
			words = append(words, text)
		}
	}
	return words
}
