package endtoend

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// TestWorkerKilled kills workers with SIGKILL at random moments, twenty times,
// while runs go on: in the middle of model calls (which take 80 ms of each step)
// and between steps. Every run ends right, nothing that was checkpointed is
// bought again, and the ledger adds up (RUN-9, RUN-11).
func TestWorkerKilled(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"looker", "looker-local"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 0))

			const kills = 10
			var requests []agent.RunRequest
			worker := w.startProcess()
			for i := range kills {
				// A run of about a second begins before each kill, so that every
				// kill meets one under way; older ones wait for a time-out.
				req := request(fmt.Sprintf("steps %d", i))
				req.Agent = mode
				requests = append(requests, req)
				w.start(req)
				if i%3 == 0 {
					// On a slow machine little of the time is model calls; some kills
					// are aimed at one.
					w.until("a model is asked", func() bool {
						return w.number("SELECT count(*) FROM model_attempt WHERE run_id = $1 AND status = 'started'", req.RunID) > 0
					})
				} else {
					// The moment of the kill is what is random here; nothing is awaited.
					time.Sleep(time.Duration(50+random.IntN(700)) * time.Millisecond)
				}
				worker.kill()
				worker = w.startProcess()
			}

			attempts, lost := 0, 0
			for _, req := range requests {
				result := w.wait(w.client.GetWorkflow(w.ctx, agent.WorkflowID(req.Tenant, req.RunID), ""))
				if result.Reason != agent.ReasonFinal || result.Steps != 8 || result.ToolCalls != 7 {
					t.Errorf("run ended %s (%s) after %d steps and %d calls, want final after 8 and 7", result.Reason, result.Detail, result.Steps, result.ToolCalls)
				}
				w.checkLedger(t, req, result)
				for step, tries := range w.show(req).AttemptsByStep() {
					for i, attempt := range tries {
						attempts++
						last := i == len(tries)-1
						switch attempt.Status {
						case db.AttemptSucceeded:
							if !last {
								t.Errorf("step %d was bought again after its checkpoint", step)
							}
						case db.AttemptLost:
							lost++
							if last {
								t.Errorf("step %d ends with a lost attempt", step)
							}
						default:
							t.Errorf("step %d has an attempt that is %s", step, attempt.Status)
						}
					}
				}
			}
			// A worker may die between its record and its purchase, never the
			// other way round.
			if bought := w.bought(); bought > attempts {
				t.Errorf("%d calls reached the model, %d attempts are recorded", bought, attempts)
			} else {
				t.Logf("%d kills, %d runs, %d attempts recorded, %d bought, %d lost", kills, len(requests), attempts, bought, lost)
			}
			if lost == 0 {
				t.Error("no kill met a model call: this proves nothing")
			}
		})
	}
}

// TestWorkerStopped ends a worker with SIGTERM in the middle of a model call and
// of a read. It exits 0 within its grace, and the run goes on elsewhere without
// waiting for a time-out (OPS-1).
func TestWorkerStopped(t *testing.T) {
	t.Parallel()
	for _, scenario := range []string{"slow-model", "slow-read"} {
		for _, mode := range []string{"looker", "looker-local"} {
			t.Run(scenario+" "+mode, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				first := w.startProcess()
				req := request(scenario)
				req.Agent = mode
				run := w.start(req)
				w.until("the slow part runs", func() bool {
					report, err := w.db.ShowRun(w.ctx, req.Scope(), req.RunID)
					if err != nil {
						return false
					}
					if scenario == "slow-model" {
						return len(report.Attempts()) == 1
					}
					return len(report.Calls()) == 1
				})
				time.Sleep(200 * time.Millisecond) // well inside of what it takes
				second := w.startProcess()
				stopped := time.Now()
				if err := first.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
				w.until("readiness is off", func() bool { return first.ready() != http.StatusOK })
				unready := time.Since(stopped)
				select {
				case <-first.exited:
					t.Error("the worker was gone before it said that it is not ready")
				default:
				}
				if unready > time.Second {
					t.Errorf("readiness went off after %s", unready)
				}
				<-first.exited
				if code := first.ProcessState.ExitCode(); code != 0 {
					t.Errorf("exit code %d", code)
				}
				if took := time.Since(stopped); took > grace+2*time.Second {
					t.Errorf("the worker took %s to stop, its grace is %s", took, grace)
				}
				result := w.wait(run)
				if result.Reason != agent.ReasonFinal {
					t.Errorf("the run ended %s (%s)", result.Reason, result.Detail)
				}
				// It was handed back within the grace and done again. Waiting
				// for a heartbeat or workflow task time-out would be 10 s first.
				if took := time.Since(stopped); took > grace+slow+3*time.Second {
					t.Errorf("the run took %s to end after the stop", took)
				} else {
					t.Logf("ended %.1f s after SIGTERM", took.Seconds())
				}
				w.checkLedger(t, req, result)
				second.kill()
			})
		}
	}
}
