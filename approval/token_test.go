package approval_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
)

// issued is when the tokens of these tests are issued.
var issued = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func hexOf(digit string) string { return strings.Repeat(digit, 64) }

func claims() approval.Claims {
	return approval.Claims{
		TokenID: "token-1", Decision: approval.Approve, Approver: "bob", Tenant: "acme", RunID: "run-1", CallID: "0.1", Revision: 2,
		Tool: "restart_service", ToolVersion: "1", ArgumentsHash: hexOf("a"), ResourceVersion: "v7",
		PlanHash: hexOf("b"), Nonce: "nonce-1", IssuedAt: issued, ExpiresAt: issued.Add(15 * time.Minute),
	}
}

func sign(t *testing.T, k approval.Key, c approval.Claims) string {
	t.Helper()
	token, err := k.Sign(c)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func verifier(t *testing.T, keys ...approval.Key) *approval.Verifier {
	t.Helper()
	var public []string
	for _, k := range keys {
		public = append(public, k.Public())
	}
	v, err := approval.NewVerifier(public...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestVerifyReturnsWhatWasSigned(t *testing.T) {
	t.Parallel()
	first, second := approval.NewKey(), approval.NewKey()
	v := verifier(t, first, second)
	for _, k := range []approval.Key{first, second} {
		got, code := v.Verify(sign(t, k, claims()), issued)
		if code != "" || got != claims() {
			t.Errorf("%q, %+v", code, got)
		}
	}
	// A resource that does not exist yet has no version.
	c := claims()
	c.ResourceVersion, c.Decision = "", approval.Decline
	if got, code := v.Verify(sign(t, first, c), issued); code != "" || got != c {
		t.Errorf("%q, %+v", code, got)
	}
	// Fractions of a second are cut off, so that no token lives longer than was said.
	c.ExpiresAt = c.ExpiresAt.Add(999 * time.Millisecond)
	if got, _ := v.Verify(sign(t, first, c), issued); !got.ExpiresAt.Equal(issued.Add(15 * time.Minute)) {
		t.Errorf("expires at %s", got.ExpiresAt)
	}
}

// TestWireFormat pins the token for programs in other languages. The key is the
// one of RFC 8037, appendix A.
func TestWireFormat(t *testing.T) {
	t.Parallel()
	seed, err := base64.RawURLEncoding.DecodeString("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A")
	if err != nil {
		t.Fatal(err)
	}
	k, err := approval.ParseKey(base64.StdEncoding.EncodeToString(seed))
	if err != nil {
		t.Fatal(err)
	}
	if want := "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="; k.Public() != want {
		t.Errorf("public key %s, want that of the RFC", k.Public())
	}
	parts := strings.Split(sign(t, k, claims()), ".")
	var got []string
	for _, part := range parts[:2] {
		text, err := base64.RawURLEncoding.DecodeString(part)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(text))
	}
	public, _ := base64.StdEncoding.DecodeString(k.Public())
	sum := sha256.Sum256(public)
	if want := `{"alg":"EdDSA","kid":"` + hex.EncodeToString(sum[:])[:16] + `","typ":"fairlead-approval+jwt"}`; got[0] != want {
		t.Errorf("header %s, want %s", got[0], want)
	}
	want := `{"iss":"fairlead","sub":"bob","jti":"token-1","iat":1796040000,"exp":1796040900,"decision":"approve","tenant":"acme",` +
		`"run_id":"run-1","call_id":"0.1","revision":2,"tool":"restart_service","tool_version":"1","arguments_hash":"` + hexOf("a") +
		`","resource_version":"v7","plan_hash":"` + hexOf("b") + `","nonce":"nonce-1"}`
	if got[1] != want {
		t.Errorf("claims %s, want %s", got[1], want)
	}
	// The signature is over the text as it stands, by the standard algorithm.
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || !ed25519.Verify(public, []byte(parts[0]+"."+parts[1]), signature) {
		t.Errorf("the signature is not Ed25519 over header and claims: %v", err)
	}
}

// forge signs any header and claims with the real key.
func forge(t *testing.T, k approval.Key, header map[string]any, body string) string {
	t.Helper()
	seed, err := base64.StdEncoding.DecodeString(k.Encode())
	if err != nil {
		t.Fatal(err)
	}
	head, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	text := base64.RawURLEncoding.EncodeToString(head) + "." + base64.RawURLEncoding.EncodeToString([]byte(body))
	return text + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(ed25519.NewKeyFromSeed(seed), []byte(text)))
}

// parts returns header and claims of a token.
func parts(t *testing.T, token string) (header, body map[string]any, text string) {
	t.Helper()
	split := strings.Split(token, ".")
	for i, into := range []*map[string]any{&header, &body} {
		raw, err := base64.RawURLEncoding.DecodeString(split[i])
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, into); err != nil {
			t.Fatal(err)
		}
		text = string(raw)
	}
	return header, body, text
}

func with(m map[string]any, key string, value any) map[string]any {
	m = maps.Clone(m)
	m[key] = value
	return m
}

func without(m map[string]any, key string) map[string]any {
	m = maps.Clone(m)
	delete(m, key)
	return m
}

func TestAttacksOnTheSignature(t *testing.T) {
	t.Parallel()
	k, stranger := approval.NewKey(), approval.NewKey()
	v := verifier(t, k)
	good := sign(t, k, claims())
	if _, code := v.Verify(good, issued); code != "" {
		t.Fatalf("the good token is refused: %q", code)
	}
	header, _, body := parts(t, good)
	segments := strings.Split(good, ".")
	public, _ := base64.StdEncoding.DecodeString(k.Public())
	// A verifier that lets the header choose takes the public key, which is no
	// secret, for the secret of an HMAC.
	confused := func(secret []byte) string {
		token := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{})
		token.Header = with(header, "alg", "HS256")
		var c jwt.MapClaims
		if err := json.Unmarshal([]byte(body), &c); err != nil {
			t.Fatal(err)
		}
		token.Claims = c
		signed, err := token.SignedString(secret)
		if err != nil {
			t.Fatal(err)
		}
		return signed
	}
	none := func(signature string) string {
		head, _ := json.Marshal(with(header, "alg", "none"))
		return base64.RawURLEncoding.EncodeToString(head) + "." + segments[1] + "." + signature
	}
	strangerHeader, _, _ := parts(t, sign(t, stranger, claims()))
	other := claims()
	other.Tenant = "umbrella"
	for name, token := range map[string]string{
		"another key":                sign(t, stranger, claims()),
		"another key, our kid":       forge(t, stranger, header, body),
		"our key, another kid":       forge(t, k, strangerHeader, body),
		"alg none":                   none(""),
		"alg none, signature":        none(segments[2]),
		"HS256, raw public key":      confused(public),
		"HS256, encoded public key":  confused([]byte(k.Public())),
		"alg in another case":        forge(t, k, with(header, "alg", "eddsa"), body),
		"no alg":                     forge(t, k, without(header, "alg"), body),
		"empty signature":            segments[0] + "." + segments[1] + ".",
		"short signature":            segments[0] + "." + segments[1] + "." + segments[2][:84],
		"signature of another token": segments[0] + "." + segments[1] + "." + strings.Split(sign(t, k, other), ".")[2],
		"zero signature":             segments[0] + "." + segments[1] + "." + base64.RawURLEncoding.EncodeToString(make([]byte, 64)),
	} {
		c, code := v.Verify(token, issued)
		if code != agent.RefusedSignature {
			t.Errorf("%s: %q", name, code)
		}
		if c != (approval.Claims{}) {
			t.Errorf("%s: claims are believed: %+v", name, c)
		}
	}
	// Nobody is trusted without keys.
	if c, code := verifier(t).Verify(good, issued); code != agent.RefusedSignature || c != (approval.Claims{}) {
		t.Errorf("without keys: %q", code)
	}
}

// TestEachClaimIsSigned alters one claim after the other in a signed token.
func TestEachClaimIsSigned(t *testing.T) {
	t.Parallel()
	k := approval.NewKey()
	v := verifier(t, k)
	good := sign(t, k, claims())
	segments := strings.Split(good, ".")
	_, body, _ := parts(t, good)
	for name, value := range body {
		var altered any
		switch value := value.(type) {
		case string:
			altered = value + "0"
		case float64:
			altered = value + 1
		}
		text, err := json.Marshal(with(body, name, altered))
		if err != nil {
			t.Fatal(err)
		}
		token := segments[0] + "." + base64.RawURLEncoding.EncodeToString(text) + "." + segments[2]
		if c, code := v.Verify(token, issued); code != agent.RefusedSignature || c != (approval.Claims{}) {
			t.Errorf("%s: %q", name, code)
		}
	}
}

// TestMalformed holds tokens that have no form, and signed ones that do not say
// exactly what a token says.
func TestMalformed(t *testing.T) {
	t.Parallel()
	k := approval.NewKey()
	v := verifier(t, k)
	good := sign(t, k, claims())
	segments := strings.Split(good, ".")
	header, body, text := parts(t, good)
	signed := func(m map[string]any) string {
		raw, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return forge(t, k, header, string(raw))
	}
	tests := map[string]string{
		"empty":                "",
		"no dots":              "token",
		"two segments":         segments[0] + "." + segments[1],
		"four segments":        good + "." + segments[2],
		"truncated claims":     segments[0] + "." + segments[1][:len(segments[1])-3] + "." + segments[2],
		"padded":               segments[0] + "=." + segments[1] + "." + segments[2],
		"loose bits":           good[:len(good)-1] + string(good[len(good)-1]+1),
		"a space":              " " + good,
		"a line end":           good + "\n",
		"invalid UTF-8":        "\xff.\xff.\xff",
		"oversized":            good + strings.Repeat("A", agent.MaxTokenBytes-len(good)+1),
		"oversized and signed": signed(with(body, "resource_version", strings.Repeat("x", agent.MaxTokenBytes))),
		"another type":         forge(t, k, with(header, "typ", "JWT"), text),
		"no type":              forge(t, k, without(header, "typ"), text),
		"no kid":               forge(t, k, without(header, "kid"), text),
		"kid is a number":      forge(t, k, with(header, "kid", 7), text),
		"a fourth header":      forge(t, k, with(header, "crit", []string{"exp"}), text),
		"a key in the header":  forge(t, k, with(header, "jwk", "x"), text),
		"claims are no object": forge(t, k, header, `["approve"]`),
		"claims are null":      forge(t, k, header, "null"),
		"a claim twice":        forge(t, k, header, strings.Replace(text, `"decision":"approve"`, `"decision":"decline","decision":"approve"`, 1)),
		"a claim in capitals":  forge(t, k, header, strings.Replace(text, `"decision"`, `"Decision"`, 1)),
		"unknown claim":        signed(with(body, "admin", true)),
		"unknown for known":    signed(with(without(body, "nonce"), "nonse", "nonce-1")),
		"another issuer":       signed(with(body, "iss", "someone")),
		"odd decision":         signed(with(body, "decision", "approve ")),
		"fraction in exp":      signed(with(body, "exp", 1796040900.5)),
		"exp as text":          signed(with(body, "exp", "1796040900")),
		"fraction in revision": signed(with(body, "revision", 1.5)),
		"revision zero":        signed(with(body, "revision", 0)),
		"huge revision":        signed(with(body, "revision", 1<<40)),
		"hash in capitals":     signed(with(body, "plan_hash", hexOf("B"))),
		"short hash":           signed(with(body, "arguments_hash", "aa")),
		"NUL":                  signed(with(body, "jti", "a\x00")),
		"odd approver":         signed(with(body, "sub", "bob\x1b[2J")),
		"lives too long":       signed(with(body, "exp", issued.Add(approval.MaxTTL+time.Second).Unix())),
		"ends before it began": signed(with(body, "exp", issued.Add(-time.Second).Unix())),
	}
	for name := range body {
		tests["without "+name] = signed(without(body, name))
		tests["null "+name] = signed(with(body, name, nil))
		if _, isText := body[name].(string); isText && name != "resource_version" {
			tests["empty "+name] = signed(with(body, name, ""))
		}
	}
	for name, token := range tests {
		if c, code := v.Verify(token, issued); code != agent.RefusedMalformed || c != (approval.Claims{}) {
			t.Errorf("%s: %q, %+v", name, code, c)
		}
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	k := approval.NewKey()
	v := verifier(t, k)
	token := sign(t, k, claims())
	for name, test := range map[string]struct {
		now  time.Time
		code agent.RefusalCode
	}{
		"at once":                      {issued, ""},
		"the last moment":              {issued.Add(15*time.Minute - time.Nanosecond), ""},
		"at its expiry":                {issued.Add(15 * time.Minute), agent.RefusedExpired},
		"a year later":                 {issued.AddDate(1, 0, 0), agent.RefusedExpired},
		"the signer's clock is ahead":  {issued.Add(-time.Minute), ""},
		"issued in the future":         {issued.Add(-time.Minute - time.Nanosecond), agent.RefusedMalformed},
		"issued in the distant future": {issued.AddDate(-1, 0, 0), agent.RefusedMalformed},
	} {
		c, code := v.Verify(token, test.now)
		if code != test.code {
			t.Errorf("%s: %q, want %q", name, code, test.code)
		}
		// The signature was good, so a refusal can say whose token it was.
		if c.Approver != "bob" || c.TokenID != "token-1" {
			t.Errorf("%s: the claims are missing: %+v", name, c)
		}
	}
}

func TestSignRefuses(t *testing.T) {
	t.Parallel()
	k := approval.NewKey()
	for name, change := range map[string]func(*approval.Claims){
		"no token ID":    func(c *approval.Claims) { c.TokenID = "" },
		"no decision":    func(c *approval.Claims) { c.Decision = "" },
		"no nonce":       func(c *approval.Claims) { c.Nonce = "" },
		"odd tenant":     func(c *approval.Claims) { c.Tenant = "a b" },
		"no revision":    func(c *approval.Claims) { c.Revision = 0 },
		"no plan hash":   func(c *approval.Claims) { c.PlanHash = "" },
		"never issued":   func(c *approval.Claims) { c.IssuedAt = time.Time{} },
		"expired":        func(c *approval.Claims) { c.ExpiresAt = c.IssuedAt },
		"lives too long": func(c *approval.Claims) { c.ExpiresAt = c.IssuedAt.Add(approval.MaxTTL + time.Second) },
		"a long version": func(c *approval.Claims) { c.ResourceVersion = strings.Repeat("x", agent.MaxTokenBytes) },
	} {
		c := claims()
		change(&c)
		if token, err := k.Sign(c); err == nil {
			t.Errorf("%s: signed as %s", name, token)
		}
	}
	if _, err := (approval.Key{}).Sign(claims()); err == nil {
		t.Error("no key signs")
	}
}

func FuzzVerify(f *testing.F) {
	k := approval.NewKey()
	good, err := k.Sign(claims())
	if err != nil {
		f.Fatal(err)
	}
	v, err := approval.NewVerifier(k.Public())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(strings.ReplaceAll(good, ".", ""))
	f.Add("e30.e30.")
	f.Fuzz(func(t *testing.T, token string) {
		if _, code := v.Verify(token, issued); (code == "") != (token == good) {
			t.Errorf("%q: %q", token, code)
		}
	})
}
