package activities_test

import (
	"encoding/json"
	"testing"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// TestRequestHashIsKeyed: who knows the rest of a request cannot confirm a guess
// of its message once the keys are gone.
func TestRequestHashIsKeyed(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	g := b.start()
	report, err := b.db.ShowRun(b.ctx, agent.Scope{Tenant: g.req.Tenant}, g.req.RunID)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(g.req)
	if err != nil {
		t.Fatal(err)
	}
	var keyed string
	err = b.db.InTx(b.ctx, g.req.Scope(), func(tx *db.Tx) error { keyed = tx.KeyedHash(db.ContentHash(text)); return nil })
	if err != nil || report.Run.RequestHash != keyed || keyed == db.ContentHash(text) {
		t.Errorf("request hash %s, want %s, %v", report.Run.RequestHash, keyed, err)
	}
}
