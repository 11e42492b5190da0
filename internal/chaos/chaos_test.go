package main

import (
	"os"
	"reflect"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/db/dbtest"
)

func TestMain(m *testing.M) {
	if isWorker() {
		serve()
		return
	}
	goleak.VerifyTestMain(m)
}

// TestSquall is a short storm on the shared servers, which are not restarted.
func TestSquall(t *testing.T) {
	t.Parallel()
	address := os.Getenv("TEMPORAL_ADDRESS")
	if address == "" {
		t.Fatal("TEMPORAL_ADDRESS is not set: run `make test`, which brings the servers and sets it")
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	s := size{runs: 10, workers: 2, kills: 4, starting: 8 * time.Second, draining: 2 * time.Minute, confirming: 12 * time.Second}
	r, err := weather(t.Context(), shore{
		databaseURL: dbtest.URL(t), temporalAddress: address, namespace: os.Getenv("TEMPORAL_NAMESPACE"),
		dir: t.TempDir(), out: t.Output(),
	}, seed, s)
	if err != nil {
		t.Fatal(err)
	}
	r.print(t.Output())
	if err := r.judge(s); err != nil {
		t.Error(err)
	}
}

// TestPlanFollowsFromSeed: one seed is one plan, another one another.
func TestPlanFollowsFromSeed(t *testing.T) {
	t.Parallel()
	s := size{runs: 100, workers: 3, kills: 24, starting: 100 * time.Second, restarts: true}
	first := newPlan(7, s)
	if !reflect.DeepEqual(first, newPlan(7, s)) {
		t.Error("the same seed gives another plan")
	}
	if reflect.DeepEqual(first.runs, newPlan(8, s).runs) {
		t.Error("another seed gives the same plan")
	}
	decisions := map[decision]int{}
	for _, run := range first.runs {
		for _, w := range run.writes {
			decisions[w.decision]++
		}
	}
	if len(decisions) != 6 || decisions[approve] < 50 {
		t.Errorf("people decide %v", decisions)
	}
}
