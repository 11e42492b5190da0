package approval_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
)

// A program of approvers' shows what waits, and sends what a person decided. The
// signaler is a Temporal client.
func ExampleOffice() {
	ctx := context.Background()
	var signaler approval.Signaler

	// Plans are encrypted: the program has the workers' key, or names one in a KMS.
	kek, err := db.LocalKey(os.Getenv("FAIRLEAD_ENCRYPTION_KEY"))
	if err != nil {
		panic(err)
	}
	database, err := db.Open(ctx, os.Getenv("FAIRLEAD_DATABASE_URL"), db.Options{KeyEncryption: kek})
	if err != nil {
		panic(err)
	}
	defer database.Close()
	key, err := approval.ParseKey(os.Getenv("FAIRLEAD_APPROVAL_KEY"))
	if err != nil {
		panic(err)
	}
	office, err := approval.Open(approval.Config{DB: database, Key: key, Policies: os.DirFS("/etc/fairlead/policies")})
	if err != nil {
		panic(err)
	}

	// The program has authenticated Bob.
	bob := approval.Approver{Tenant: "acme", User: "bob"}
	waiting, err := office.Pending(ctx, bob, approval.Filter{Environment: "production"})
	if err != nil {
		panic(err)
	}
	for _, plan := range waiting.Plans {
		fmt.Println(plan.Summary, plan.Resource, plan.ResourceVersion, string(plan.Arguments))
		// Bob says yes to exactly this.
		token, err := office.Approve(ctx, bob, plan)
		if err != nil {
			panic(err)
		}
		if err := office.Send(ctx, signaler, token); err != nil {
			panic(err)
		}
		outcome, err := office.Outcome(ctx, bob, token)
		if err != nil {
			panic(err)
		}
		fmt.Println(outcome.Standing, outcome.Result)
	}
}

// What one program signs another believes, if it trusts the public key, until
// the token expires.
func ExampleVerifier() {
	key := approval.NewKey()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	token, err := key.Sign(approval.Claims{
		TokenID: approval.Nonce(), Decision: approval.Approve, Approver: "bob", Tenant: "acme", RunID: "run-1", CallID: "0.0", Revision: 1,
		Tool: "restart_service", ToolVersion: "1", ArgumentsHash: hexOf("a"), ResourceVersion: "v7",
		PlanHash: hexOf("b"), Nonce: approval.Nonce(), IssuedAt: now, ExpiresAt: now.Add(10 * time.Minute),
	})
	if err != nil {
		panic(err)
	}

	verifier, err := approval.NewVerifier(key.Public())
	if err != nil {
		panic(err)
	}
	claims, refused := verifier.Verify(token, now)
	fmt.Println(claims.Decision, "by", claims.Approver, refused == "")
	claims, refused = verifier.Verify(token, now.Add(10*time.Minute))
	fmt.Println("by", claims.Approver, refused == agent.RefusedExpired)
	// Output:
	// approve by bob true
	// by bob true
}
