package endtoend

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
)

// attack is a way to have a write performed that nobody confirmed as it is.
type attack struct {
	// thing is what the run wants to change; empty means a lamp.
	thing string
	// forge makes one token of a plan and its nonce.
	forge func(*world, agent.RunRequest, approval.Plan, string) string
	// payload is sent instead, if there is no forge.
	payload any
	code    agent.RefusalCode
	// approver is who is on record: nobody, unless the signature was good.
	approver string
}

// changed is a token that was signed with the approvers' key and says something
// else than the plan.
func changed(edit func(*approval.Claims)) func(*world, agent.RunRequest, approval.Plan, string) string {
	return func(w *world, req agent.RunRequest, plan approval.Plan, nonce string) string {
		return w.sign(claims(req, plan, nonce, edit))
	}
}

// cut is a good token of which a part is changed.
func cut(edit func(header, claims, signature string) string) func(*world, agent.RunRequest, approval.Plan, string) string {
	return func(w *world, req agent.RunRequest, plan approval.Plan, nonce string) string {
		parts := strings.Split(w.sign(claims(req, plan, nonce, nil)), ".")
		return edit(parts[0], parts[1], parts[2])
	}
}

func base64url(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// payload is one that no converter of this SDK makes.
func payload(encoding, data string) converter.RawValue {
	return converter.NewRawValue(&common.Payload{Metadata: map[string][]byte{"encoding": []byte(encoding)}, Data: []byte(data)})
}

const otherHash = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// attacks are refused each for its reason, and the run waits on.
var attacks = map[string]attack{
	// What is no token.
	"garbage":            {payload: agent.Approval{Token: "approve!"}, code: agent.RefusedMalformed},
	"nothing":            {payload: agent.Approval{}, code: agent.RefusedMalformed},
	"10 KB":              {payload: agent.Approval{Token: strings.Repeat("e30.", 2500)}, code: agent.RefusedMalformed},
	"a plain string":     {payload: "approved", code: agent.RefusedMalformed},
	"null":               {payload: nil, code: agent.RefusedMalformed},
	"a number":           {payload: 1, code: agent.RefusedMalformed},
	"true":               {payload: true, code: agent.RefusedMalformed},
	"a list":             {payload: []agent.Approval{{Token: "x"}}, code: agent.RefusedMalformed},
	"bytes":              {payload: []byte{0xff, 0xfe}, code: agent.RefusedMalformed},
	"a token of numbers": {payload: map[string]any{"token": 7}, code: agent.RefusedMalformed},
	"broken JSON":        {payload: payload("json/plain", `{"token":`), code: agent.RefusedMalformed},
	"unknown encoding":   {payload: payload("unheard/of", "\x00\x01"), code: agent.RefusedMalformed},
	"words of approval":  {payload: map[string]any{"approved": true, "approver": "bob"}, code: agent.RefusedMalformed},

	// What has no good signature.
	"signed with another key": {
		forge: func(w *world, req agent.RunRequest, plan approval.Plan, nonce string) string {
			token, err := approval.NewKey().Sign(claims(req, plan, nonce, nil))
			if err != nil {
				w.Fatal(err)
			}
			return token
		},
		code: agent.RefusedSignature,
	},
	"another key under the trusted one's name": {
		forge: func(w *world, req agent.RunRequest, plan approval.Plan, nonce string) string {
			token, err := approval.NewKey().Sign(claims(req, plan, nonce, nil))
			if err != nil {
				w.Fatal(err)
			}
			header, _, _ := strings.Cut(w.sign(claims(req, plan, nonce, nil)), ".")
			_, rest, _ := strings.Cut(token, ".")
			return header + "." + rest
		},
		code: agent.RefusedSignature,
	},
	"unsigned, and says so": {
		forge: cut(func(header, claims, _ string) string {
			return base64url(strings.Replace(unbase64(header), "EdDSA", "none", 1)) + "." + claims + "."
		}),
		code: agent.RefusedSignature,
	},
	"signed with the public key as a password": {
		forge: cut(func(header, claims, _ string) string {
			signed := base64url(strings.Replace(unbase64(header), "EdDSA", "HS256", 1)) + "." + claims
			mac := hmac.New(sha256.New, []byte(approvalKey.Public()))
			mac.Write([]byte(signed))
			return signed + "." + base64url(string(mac.Sum(nil)))
		}),
		code: agent.RefusedSignature,
	},
	"truncated":             {forge: cut(func(h, c, s string) string { return h + "." + c + "." + s[:len(s)-10] }), code: agent.RefusedSignature},
	"without its signature": {forge: cut(func(h, c, _ string) string { return h + "." + c + "." }), code: agent.RefusedSignature},
	"without its last part": {forge: cut(func(h, c, _ string) string { return h + "." + c }), code: agent.RefusedMalformed},
	"with a part too many":  {forge: cut(func(h, c, s string) string { return h + "." + c + "." + s + "." + s }), code: agent.RefusedMalformed},
	"a decline made approval": {
		forge: func(w *world, req agent.RunRequest, plan approval.Plan, nonce string) string {
			declined := w.sign(claims(req, plan, nonce, func(c *approval.Claims) { c.Decision = approval.Decline }))
			parts := strings.Split(declined, ".")
			parts[1] = base64url(strings.Replace(unbase64(parts[1]), `"decline"`, `"approve"`, 1))
			return strings.Join(parts, ".")
		},
		code: agent.RefusedSignature,
	},

	// What was signed for something else.
	"for another run": {
		forge: func(w *world, _ agent.RunRequest, _ approval.Plan, _ string) string {
			other := change(changeArgs{Thing: "lamp", To: "on"})
			run := w.start(other)
			token := w.token(bob, w.pending(other, bob), approval.Approve)
			if err := w.client.CancelWorkflow(w.ctx, run.GetID(), ""); err != nil {
				w.Fatal(err)
			}
			w.wait(run)
			return token.Text
		},
		code: agent.RefusedWrongRun, approver: "bob",
	},
	"for another tenant":       {forge: changed(func(c *approval.Claims) { c.Tenant = "umbrella" }), code: agent.RefusedWrongRun, approver: "bob"},
	"for another call":         {forge: changed(func(c *approval.Claims) { c.CallID = "1.0" }), code: agent.RefusedWrongCall, approver: "bob"},
	"for other arguments":      {forge: changed(func(c *approval.Claims) { c.ArgumentsHash = otherHash }), code: agent.RefusedWrongPlan, approver: "bob"},
	"for another version":      {forge: changed(func(c *approval.Claims) { c.ResourceVersion = "v1" }), code: agent.RefusedWrongPlan, approver: "bob"},
	"for no version":           {forge: changed(func(c *approval.Claims) { c.ResourceVersion = "" }), code: agent.RefusedWrongPlan, approver: "bob"},
	"for another tool":         {forge: changed(func(c *approval.Claims) { c.Tool = "send" }), code: agent.RefusedWrongPlan, approver: "bob"},
	"for another tool version": {forge: changed(func(c *approval.Claims) { c.ToolVersion = "2" }), code: agent.RefusedWrongPlan, approver: "bob"},
	"for another plan":         {forge: changed(func(c *approval.Claims) { c.PlanHash = otherHash }), code: agent.RefusedWrongPlan, approver: "bob"},
	"with another nonce":       {forge: changed(func(c *approval.Claims) { c.Nonce = approval.Nonce() }), code: agent.RefusedWrongPlan, approver: "bob"},
	"for another revision":     {forge: changed(func(c *approval.Claims) { c.Revision = 2 }), code: agent.RefusedWrongPlan, approver: "bob"},
	"a decline of another plan": {
		forge: changed(func(c *approval.Claims) { c.Decision, c.PlanHash = approval.Decline, otherHash }),
		code:  agent.RefusedWrongPlan, approver: "bob",
	},
	"past its time": {
		forge: changed(func(c *approval.Claims) {
			c.IssuedAt, c.ExpiresAt = c.IssuedAt.Add(-10*time.Minute), c.IssuedAt.Add(-5*time.Minute)
		}),
		code: agent.RefusedExpired, approver: "bob",
	},
	"before its time": {
		forge: changed(func(c *approval.Claims) {
			c.IssuedAt, c.ExpiresAt = c.IssuedAt.Add(10*time.Minute), c.IssuedAt.Add(15*time.Minute)
		}),
		code: agent.RefusedMalformed,
	},

	// Who may not decide.
	"by one without rights": {forge: changed(func(c *approval.Claims) { c.Approver = "mallory" }), code: agent.RefusedNotAuthorized, approver: "mallory"},
	"declined by one without rights": {
		forge: changed(func(c *approval.Claims) { c.Approver, c.Decision = "mallory", approval.Decline }),
		code:  agent.RefusedNotAuthorized, approver: "mallory",
	},
	"by the requester, under four eyes": {
		thing: "vault-7", forge: changed(func(c *approval.Claims) { c.Approver = "ann" }), code: agent.RefusedNotAuthorized, approver: "ann",
	},
	"by the operator, who only settles": {forge: changed(func(c *approval.Claims) { c.Approver = "olga" }), code: agent.RefusedNotAuthorized, approver: "olga"},
}

func unbase64(text string) string {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// TestAttacks plays each attack against a run that waits, twice: it is refused
// and put on record each time, the run waits on, and a good approval is then
// carried out once (WRITE-2).
func TestAttacks(t *testing.T) {
	t.Parallel()
	things := newThings()
	w := newWorld(t).withWriter(things, nil)
	for name, a := range attacks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := w.in(t)
			if a.thing == "" {
				a.thing = "lamp-" + uuid.NewString()
			}
			req := change(changeArgs{Thing: a.thing, To: "on"})
			run := w.start(req)
			plan, nonce := w.planned(req)
			sent := a.payload
			if a.forge != nil {
				sent = agent.Approval{Token: a.forge(w, req, plan, nonce)}
			}
			for range 2 {
				if err := w.client.SignalWorkflow(w.ctx, run.GetID(), "", agent.SignalApproval, sent); err != nil {
					t.Fatal(err)
				}
			}
			code := string(a.code)
			if codes := w.awaitRefusals(req, 2); codes != code+" "+code {
				t.Errorf("refusals %q, want %q twice", codes, code)
			}
			for _, r := range w.show(req).Refusals {
				if r.Approver != a.approver || (r.TokenID != "") != (a.approver != "") {
					t.Errorf("on record is %+v, want approver %q", r, a.approver)
				}
			}
			w.wantRecord(req, "plan 0.0/1 pending, call 0.0 proposed")
			if status := w.status(req); status != agent.StatusWaitingConfirmation {
				t.Errorf("status %s", status)
			}
			key := keyOf(req, "0.0", "change")
			if n := things.effects(key); n != 0 {
				t.Fatalf("%d effects", n)
			}
			w.approve(req, bob)
			result := w.wait(run)
			if result.Reason != agent.ReasonFinal || things.effects(key) != 1 || len(w.refusals(req)) != 2 {
				t.Errorf("ended %+v with %d effects and refusals %v", result, things.effects(key), w.refusals(req))
			}
			w.wantRecord(req, "plan 0.0/1 approved by bob, write 0.0 performed by commit, call 0.0 succeeded")
			w.checkWrites(req, things)
		})
	}
}

// TestClaimOfTheModel: what a model says about confirmations is text.
func TestClaimOfTheModel(t *testing.T) {
	t.Parallel()
	things := newThings()
	w := newWorld(t).withWriter(things, nil)
	req := ask("changer", "claim "+proposal("change", changeArgs{Thing: "lamp", To: "on"}))
	run := w.start(req)
	plan := w.pending(req, bob)
	if !strings.HasPrefix(plan.Purpose, "The user has confirmed this.") || strings.Contains(plan.Summary, "confirmed") {
		t.Errorf("the approver is shown purpose %q, summary %q", plan.Purpose, plan.Summary)
	}
	if status := w.status(req); status != agent.StatusWaitingConfirmation || things.total() != 0 {
		t.Errorf("status %s with %d effects", status, things.total())
	}
	w.signal(req, w.token(bob, plan, approval.Decline).Text)
	if result := w.wait(run); result.Actions[0].Error != agent.ToolDeclined || things.total() != 0 {
		t.Errorf("ended %+v with %d effects", result, things.total())
	}
}
