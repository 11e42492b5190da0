package db_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/db/dbtest"
)

// TestPlansOfNewTables: a connection keeps the plan of its first use, which may
// be made while the tables are new. It must not go through
// all that a tenant has.
func TestPlansOfNewTables(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	begin(t, d, scopeOf("acme"), "c", "r")
	plan := explain(t, owner, "conversation.sql", "MessagesBeforeRun", "'acme', 'r', 100")
	if strings.Contains(plan, "Index Cond: (tenant = $1)\n") || strings.Contains(plan, "Seq Scan") {
		t.Errorf("it goes through all that a tenant has:\n%s", plan)
	}
}
