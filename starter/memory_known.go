package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/vault"
)

// anythingOf reports whether anything is stored of a user. Who has keys, or had some, has
// or had content; without, there may be refused proposals, runs that never began,
// and receipts.
func anythingOf(ctx context.Context, m memories, r remembered) (bool, error) {
	switch _, err := m.LookUpKeys(ctx, vault.Owner{Tenant: r.tenant, Subject: r.user}); {
	case errors.Is(err, db.ErrUnavailable), ctx.Err() != nil:
		return false, errors.Join(ctx.Err(), err)
	case !errors.Is(err, db.ErrNotFound):
		// That this program cannot open them is no reason not to erase.
		return true, nil
	}
	records, err := m.Memories(ctx, r.tenant, r.user, db.MemoryFilter{Past: true, Limit: 1})
	if err != nil || len(records) > 0 {
		return true, err
	}
	for _, state := range append([]agent.MemoryState{""}, refusedStates...) {
		candidates, err := m.MemoryCandidates(ctx, r.tenant, r.user, state, 1)
		if err != nil || len(candidates) > 0 {
			return true, err
		}
	}
	runs, err := m.ListRuns(ctx, db.RunFilter{Tenant: r.tenant, User: r.user, Limit: 1})
	if err != nil || len(runs) > 0 {
		return true, err
	}
	receipts, err := m.Erasures(ctx, r.tenant, r.user)
	return len(receipts) > 0, err
}

// mustBeKnown refuses to erase a user of whom nothing is stored: a mistyped name
// would look like an erasure.
func (a *app) mustBeKnown(ctx context.Context, m memories, r remembered) error {
	ctx, cancel := context.WithTimeout(ctx, 4*callTimeout)
	defer cancel()
	found, err := anythingOf(ctx, m, r)
	switch {
	case err != nil:
		return a.explainMemory(err, "")
	case found:
		return nil
	}
	return usagef("nothing is stored of user %s in tenant %s, neither keys nor runs, memories, proposals or receipts, so nothing was erased: is the name right? "+
		"To have the keys destroyed and a receipt all the same, add --unknown-user", r.user, r.tenant)
}

// mustHaveMemory refuses to reconcile a tenant that never had a proposal or memory.
func (a *app) mustHaveMemory(ctx context.Context, tenant string) error {
	return a.withMemories(ctx, "", func(ctx context.Context, m memories) error {
		tenants, err := m.MemoryTenants(ctx)
		if err != nil || slices.Contains(tenants, tenant) {
			return err
		}
		return usagef("%s", fmt.Sprintf("nothing was ever remembered or proposed in tenant %s, so there is nothing to reconcile: is the name right?", tenant))
	})
}
