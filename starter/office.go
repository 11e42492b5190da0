package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/config"
)

// office is where the starter takes decisions; *approval.Office implements all
// but Close.
type office interface {
	Pending(ctx context.Context, approver approval.Approver, f approval.Filter) (approval.Pending, error)
	Approve(ctx context.Context, approver approval.Approver, plan approval.Plan) (approval.Token, error)
	Decline(ctx context.Context, approver approval.Approver, plan approval.Plan) (approval.Token, error)
	Send(ctx context.Context, signaler approval.Signaler, token approval.Token) error
	Outcome(ctx context.Context, approver approval.Approver, token approval.Token) (approval.Outcome, error)
	PendingMemories(ctx context.Context, person approval.Approver, f approval.MemoryFilter) (approval.PendingMemories, error)
	ConfirmMemory(ctx context.Context, person approval.Approver, shown approval.Memory) (approval.Token, error)
	DeclineMemory(ctx context.Context, person approval.Approver, shown approval.Memory) (approval.Token, error)
	MemoryStanding(ctx context.Context, person approval.Approver, id string) (db.MemoryCandidate, error)
	Unsettled(ctx context.Context, operator approval.Approver) (approval.Unsettled, error)
	Settle(ctx context.Context, signaler approval.Signaler, operator approval.Approver, ref approval.WriteRef, s approval.Settlement) (approval.Settled, error)
	Close()
}

// databaseOffice is an office with its database.
type databaseOffice struct {
	*approval.Office
	database *db.DB
}

// Close implements office.
func (o databaseOffice) Close() { o.database.Close() }

func openOffice(ctx context.Context, settings config.Config) (office, error) {
	c := approval.Config{}
	if text := settings.Approval.Key.Value(); text != "" {
		var err error
		if c.Key, err = approval.ParseKey(text); err != nil {
			return nil, &exit{exitUsage, err.Error()}
		}
	}
	if settings.Policies != "" {
		c.Policies = os.DirFS(settings.Policies)
	}
	var err error
	if c.DB, err = openDatabase(ctx, settings); err != nil {
		return nil, err
	}
	o, err := approval.Open(c)
	if err != nil {
		c.DB.Close()
		if settings.Policies != "" {
			return nil, usagef("policies in %s (%s): %v", settings.Policies, config.Variable("policies"), err)
		}
		return nil, err
	}
	return databaseOffice{o, c.DB}, nil
}

// person is who decides or settles.
type person struct{ tenant, user string }

func (p *person) flags(c *cobra.Command, role string) {
	c.Flags().StringVar(&p.tenant, "tenant", defaultTenant, "tenant that owns the runs")
	c.Flags().StringVar(&p.user, "user", "", role+" who you are (required); policies say what this user may do")
}

func (p *person) check() error {
	if p.user == "" {
		return usagef("--user is missing: say who decides")
	}
	if !agent.ValidID(p.tenant) || !agent.ValidID(p.user) {
		return usagef("--tenant and --user must be 1 to 128 ASCII letters, digits or . _ : @ -")
	}
	return nil
}

func (p *person) approver() approval.Approver {
	return approval.Approver{Tenant: p.tenant, User: p.user}
}

// office opens the office of a command.
func (a *app) office(ctx context.Context) (office, error) {
	if err := a.requireContent(); err != nil {
		return nil, err
	}
	return a.openOffice(ctx, a.settings)
}

// explainDecision turns a refusal of the office into what a person can act on.
func (a *app) explainDecision(err error, p person, runID string) error {
	again := fmt.Sprintf("look again with starter pending %s --tenant %s --user %s", runID, p.tenant, p.user)
	refuse := func(why string) error { return &exit{exitRunFailed, why} }
	switch {
	case err == nil:
		return nil
	case errors.Is(err, approval.ErrNotFound):
		return usagef("there is no such plan or write of run %s in tenant %s", runID, p.tenant)
	case errors.Is(err, approval.ErrForbidden):
		return refuse(fmt.Sprintf("%v; ask one who may, or have the policies changed", err))
	case errors.Is(err, approval.ErrUnavailable):
		return &exit{exitUnreachable, fmt.Sprintf("%v; until the policies are mended nothing is decided", err)}
	case errors.Is(err, approval.ErrChanged):
		return refuse(fmt.Sprintf("%v: nothing was sent; %s", err, again))
	case errors.Is(err, approval.ErrUnderWay):
		return refuse(fmt.Sprintf("%v: look it up where it was sent, and settle it then", err))
	case errors.Is(err, approval.ErrDecided):
		return refuse(fmt.Sprintf("%v; see starter show %s --tenant %s", err, runID, p.tenant))
	case errors.Is(err, approval.ErrExpired), errors.Is(err, approval.ErrWithdrawn):
		return refuse(fmt.Sprintf("%v: nothing was sent; see starter show %s --tenant %s", err, runID, p.tenant))
	case errors.Is(err, approval.ErrDamaged):
		return refuse(err.Error())
	case errors.Is(err, approval.ErrNoKey):
		return usagef("%s is not set: decisions are signed with the private approval key, which approvers' programs hold; starter approval-key makes a pair",
			config.Variable("approval.key"))
	}
	return a.explain(err, runID, p.tenant)
}
