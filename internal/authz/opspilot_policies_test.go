package authz

import (
	"testing"

	"github.com/fairlead/fairlead/examples/opspilot/policies"
)

// The policies of the example say what its README promises.
func TestOpsPilotPolicies(t *testing.T) {
	t.Parallel()
	p, err := Load(policies.Files)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		action                     Action
		user, requester, tool, env string
		tenant                     string
		want                       error
	}{
		"four eyes in production":            {Approve, "bob", "bob", "restart_service", "production", "demo", ErrForbidden},
		"the requester in production":        {Approve, "ann", "ann", "restart_service", "production", "demo", ErrForbidden},
		"on call in production":              {Approve, "bob", "ann", "restart_service", "production", "demo", nil},
		"on call, a ticket":                  {Approve, "bob", "ann", "open_ticket", "production", "demo", nil},
		"on call, another tool":              {Approve, "bob", "ann", "delete_service", "production", "demo", ErrForbidden},
		"the requester elsewhere":            {Approve, "ann", "ann", "restart_service", "staging", "demo", nil},
		"on call for the own run elsewhere":  {Approve, "bob", "bob", "restart_service", "staging", "demo", nil},
		"a stranger elsewhere":               {Approve, "eve", "ann", "restart_service", "staging", "demo", ErrForbidden},
		"the same name in another tenant":    {Approve, "bob", "ann", "restart_service", "production", "acme", ErrForbidden},
		"an operator settles":                {Settle, "bob", "ann", "restart_service", "production", "demo", nil},
		"the requester does not settle":      {Settle, "ann", "ann", "restart_service", "production", "demo", ErrForbidden},
		"everyone is offered the tool":       {Offer, "ann", "ann", "restart_service", "production", "demo", nil},
		"everyone may have a plan made":      {Prepare, "ann", "ann", "restart_service", "production", "demo", nil},
		"what was approved may be committed": {Commit, "ann", "ann", "restart_service", "production", "demo", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect(t, p, Question{
				Action: c.action, Tenant: c.tenant, Environment: c.env, Agent: "opspilot", User: c.user, Requester: c.requester,
				Tool: c.tool, Risk: "write", Object: "service/payment-api." + c.env, Arguments: []byte(`{"service_id":"payment-api.` + c.env + `"}`),
			}, c.want)
		})
	}
}
