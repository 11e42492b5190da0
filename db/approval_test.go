package db_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/db/dbtest"
)

// waitWith stores a run that waits with a plan made at a time.
func waitWith(t testing.TB, d *db.DB, scope agent.Scope, runID string, at time.Time) db.WritePlan {
	t.Helper()
	run := begin(t, d, scope, "c-"+runID, runID)
	plan := db.WritePlan{
		RunID: runID, CallID: "0.0", Revision: 1, Tool: "restart", ToolVersion: "1", ArgumentsHash: digest, Resource: "service/" + scope.Tenant,
		ResourceVersion: "v1", Summary: "Restart it.", Hash: digest, Nonce: "n", PolicyDigest: digest, CreatedAt: at, ExpiresAt: at.Add(time.Hour),
	}
	err := d.InTx(ctx, scope, func(tx *db.Tx) error {
		tx.InsertToolCalls(runID, []db.ToolCall{{ID: "0.0", Tool: "restart", ToolVersion: "1", Risk: "write", Arguments: "{}", ArgumentsHash: digest, Status: db.CallProposed}})
		tx.InsertPlan(plan)
		return tx.MoveRun(run, db.Move{To: agent.StatusWaitingConfirmation})
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// approve closes a plan as approved and records the intent.
func approve(t testing.TB, d *db.DB, scope agent.Scope, plan db.WritePlan, key string) {
	t.Helper()
	plan.Status, plan.DecidedBy, plan.DecidedAt, plan.TokenID = db.PlanApproved, "bob", plan.CreatedAt, "token"
	err := d.InTx(ctx, scope, func(tx *db.Tx) error {
		tx.ClosePlan(plan)
		tx.RecordIntent(db.WriteIntent{
			Key: key, RunID: plan.RunID, CallID: plan.CallID, Revision: plan.Revision, ArgumentsHash: digest, ApprovedBy: "bob", PolicyDigest: digest, RecordedAt: plan.CreatedAt,
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestPendingPlansByPage(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	at := time.Now().UTC().Truncate(time.Microsecond)
	// Two are made in the same moment: the cursor must not pass over one.
	for i, offset := range []time.Duration{3, 1, 1, 2} {
		waitWith(t, d, scopeOf("acme"), fmt.Sprintf("r%d", i), at.Add(offset*time.Second))
	}
	waitWith(t, d, scopeOf("umbrella"), "r1", at)
	for limit, want := range map[int]string{1: "r1|r2|r3|r0|", 2: "r1 r2|r3 r0|", 3: "r1 r2 r3|r0", 4: "r1 r2 r3 r0|", 5: "r1 r2 r3 r0"} {
		filter := db.PlanFilter{Tenant: "acme", Now: at, Limit: limit}
		var pages []string
		for {
			page, err := d.PendingPlans(ctx, filter)
			if err != nil {
				t.Fatal(err)
			}
			var ids []string
			for _, state := range page.Plans {
				ids = append(ids, state.Plan.RunID)
				if state.Plan.Resource != "service/acme" || state.Request != "secret of acme" || state.Run.Scope.Tenant != "acme" {
					t.Errorf("a plan of another tenant: %+v", state)
				}
			}
			pages = append(pages, strings.Join(ids, " "))
			if page.Next == nil {
				break
			}
			filter.After = *page.Next
		}
		if got := strings.Join(pages, "|"); got != want {
			t.Errorf("pages of %d: %q, want %q", limit, got, want)
		}
	}
}

func TestApproversNeedATenant(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	_, err1 := d.PendingPlans(ctx, db.PlanFilter{})
	_, err2 := d.PlanState(ctx, "", "r", "0.0", 1)
	_, err3 := d.PlanOutcome(ctx, "", "r", "0.0", 1, "token")
	_, err4 := d.UnsettledWrites(ctx, db.WriteFilter{})
	_, err5 := d.RunOfTenant(ctx, "", "r")
	for i, err := range []error{err1, err2, err3, err4, err5} {
		if !errors.Is(err, db.ErrScope) {
			t.Errorf("%d: %v", i+1, err)
		}
	}
}

func TestPlansOfAnotherTenant(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	at := time.Now().UTC().Truncate(time.Microsecond)
	approve(t, d, scopeOf("acme"), waitWith(t, d, scopeOf("acme"), "r", at), digest)
	if state, err := d.PlanState(ctx, "acme", "r", "0.0", 1); err != nil || state.Plan.Resource != "service/acme" {
		t.Fatalf("%+v, %v", state, err)
	}
	_, err1 := d.PlanState(ctx, "umbrella", "r", "0.0", 1)
	_, err2 := d.PlanOutcome(ctx, "umbrella", "r", "0.0", 1, "token")
	_, err3 := d.RunOfTenant(ctx, "umbrella", "r")
	for i, err := range []error{err1, err2, err3} {
		if !errors.Is(err, db.ErrNotFound) {
			t.Errorf("%d: %v", i+1, err)
		}
	}
	writes, err := d.UnsettledWrites(ctx, db.WriteFilter{Tenant: "umbrella"})
	if err != nil || len(writes) != 0 {
		t.Errorf("%+v, %v", writes, err)
	}
}

func TestUnsettledWritesByPage(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	at := time.Now().UTC().Truncate(time.Microsecond)
	for i, offset := range []time.Duration{2, 1, 1} {
		id := fmt.Sprintf("r%d", i)
		approve(t, d, scopeOf("acme"), waitWith(t, d, scopeOf("acme"), id, at.Add(offset*time.Second)), strings.Repeat(fmt.Sprint(i), 64))
	}
	filter := db.WriteFilter{Tenant: "acme", Limit: 2}
	first, err := d.UnsettledWrites(ctx, filter)
	if err != nil || len(first) != 2 || first[0].Run.ID != "r1" || first[1].Run.ID != "r2" {
		t.Fatalf("%+v, %v", first, err)
	}
	filter.After = &first[1].Intent
	second, err := d.UnsettledWrites(ctx, filter)
	if err != nil || len(second) != 1 || second[0].Run.ID != "r0" {
		t.Fatalf("%+v, %v", second, err)
	}
	filter = db.WriteFilter{Tenant: "acme", Environment: "test"}
	if none, err := d.UnsettledWrites(ctx, filter); err != nil || len(none) != 0 {
		t.Errorf("another environment: %+v, %v", none, err)
	}
}

// TestSettleWriteOnce asks again in the same state, as one would who read it
// before.
func TestSettleWriteOnce(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	at := time.Now().UTC().Truncate(time.Microsecond)
	approve(t, d, scopeOf("acme"), waitWith(t, d, scopeOf("acme"), "r", at), digest)
	var state db.WriteState
	settle := func(performed bool, by string) (settled bool) {
		t.Helper()
		err := d.InTx(ctx, scopeOf("acme"), func(tx *db.Tx) (err error) {
			if state.Intent == nil {
				if state, err = tx.HoldWrite(ctx, "r", "0.0"); err != nil {
					return err
				}
			}
			settled, err = tx.SettleWrite(ctx, state, db.Settlement{Performed: performed, By: by, Note: "n", At: at})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return settled
	}
	if !settle(true, "olga") || settle(false, "eve") {
		t.Error("the first settlement does not stay")
	}
	state, err := d.Write(ctx, scopeOf("acme"), "r", "0.0")
	if i := state.Intent; err != nil || i.Result != db.WritePerformed || i.SettledBy != "olga" || i.SettledNote != "n" || !i.ResolvedAt.Equal(at) {
		t.Errorf("%+v, %v", state.Intent, err)
	}
	// The run goes on, so its call is its own.
	var status string
	if err := dbtest.Owner(t, url).QueryRow(ctx, "SELECT status FROM tool_call").Scan(&status); err != nil || status != "proposed" {
		t.Errorf("%s, %v", status, err)
	}
}
