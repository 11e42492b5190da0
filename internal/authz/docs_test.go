package authz

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"

	"github.com/cedar-policy/cedar-go"
)

// blocks returns the blocks of code of docs/policies.md in a language.
func blocks(t *testing.T, language string, want int) []string {
	t.Helper()
	page, err := os.ReadFile("../../docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, match := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllSubmatch(page, -1) {
		texts = append(texts, string(match[1]))
	}
	if len(texts) != want {
		t.Fatalf("the page has %d blocks of %s, want %d", len(texts), language, want)
	}
	return texts
}

// TestDocs holds docs/policies.md to what it says.
func TestDocs(t *testing.T) {
	t.Parallel()
	policies, examples := blocks(t, "cedar", 3), blocks(t, "json", 2)
	if policies[0] != readDefault(t) {
		t.Error("the page does not quote default.cedar as it is")
	}
	files := map[string]string{
		"default.cedar": policies[0], "four-eyes.cedar": policies[1], "limits.cedar": policies[2], "entities.json": examples[0],
	}
	p := load(t, files)
	expect(t, p, ask(Approve, nil), ErrForbidden) // four eyes
	expect(t, p, ask(Approve, by("bob")), nil)    // of the leads, who are approvers
	expect(t, p, ask(Settle, by("olga")), nil)

	scale := func(replicas string) func(*Question) {
		return func(q *Question) {
			q.Tool, q.Arguments = "scale_service", json.RawMessage(`{"replicas":`+replicas+`}`)
		}
	}
	expect(t, p, ask(Commit, scale("10")), nil)
	expect(t, p, ask(Commit, scale("11")), ErrForbidden)
	expect(t, p, ask(Prepare, scale("11")), ErrForbidden)
	payment := func(user string) func(*Question) {
		return func(q *Question) {
			q.User, q.Environment, q.Object = user, "test", "service/payment-api.test"
		}
	}
	expect(t, p, ask(Approve, payment("ann")), ErrForbidden)
	expect(t, p, ask(Approve, payment("bob")), nil)

	// The request for the command line.
	var request struct {
		Principal, Action, Resource string
		Context                     cedar.Record
	}
	if err := json.Unmarshal([]byte(examples[1]), &request); err != nil {
		t.Fatal(err)
	}
	uid := func(text string) (uid cedar.EntityUID) {
		if err := uid.UnmarshalCedar([]byte(text)); err != nil {
			t.Fatal(err)
		}
		return uid
	}
	decision, diagnostic := cedar.Authorize(p.policies, p.entities, cedar.Request{
		Principal: uid(request.Principal), Action: uid(request.Action), Resource: uid(request.Resource), Context: request.Context,
	})
	if decision != cedar.Deny || len(diagnostic.Errors) > 0 || len(diagnostic.Reasons) != 1 || diagnostic.Reasons[0].PolicyID != "four-eyes" {
		t.Errorf("the request is answered %v %+v, want denied by four-eyes", decision, diagnostic)
	}
	if request.Context.Len() != len(contextAttributes) {
		t.Errorf("the request's context has %d attributes, want %d", request.Context.Len(), len(contextAttributes))
	}
}
