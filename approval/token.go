package approval

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/tool/schema"
)

// Decision is what an approver says about a plan.
type Decision string

// The closed set of decisions.
const (
	Approve Decision = "approve"
	Decline Decision = "decline"
)

// Valid reports whether d is one of the closed set.
func (d Decision) Valid() bool { return d == Approve || d == Decline }

const (
	// DefaultTTL is how long a token lives unless the Office is told otherwise.
	DefaultTTL = 15 * time.Minute
	// MaxTTL is the longest life of a token that is believed.
	MaxTTL = time.Hour

	issuer    = "fairlead"
	tokenType = "fairlead-approval+jwt"
	// clockAhead is how far the signer's clock may be ahead of the verifier's.
	clockAhead = time.Minute
)

// Claims are what a token says. Every field but ResourceVersion is required. The
// resource itself and the arguments are bound by PlanHash: tokens travel through
// histories, which hold no content.
type Claims struct {
	// TokenID is used once.
	TokenID     string
	Decision    Decision
	Approver    string
	Tenant      string
	RunID       string
	CallID      string
	Revision    int
	Tool        string
	ToolVersion string
	// ArgumentsHash and PlanHash are SHA-256 in hex.
	ArgumentsHash   string
	ResourceVersion string
	PlanHash        string
	Nonce           string
	// IssuedAt and ExpiresAt are kept in whole seconds, rounded down.
	IssuedAt  time.Time
	ExpiresAt time.Time
}

// wire is the JSON of Claims.
type wire struct {
	Issuer          string   `json:"iss"`
	Approver        string   `json:"sub"`
	TokenID         string   `json:"jti"`
	IssuedAt        int64    `json:"iat"`
	ExpiresAt       int64    `json:"exp"`
	Decision        Decision `json:"decision"`
	Tenant          string   `json:"tenant"`
	RunID           string   `json:"run_id"`
	CallID          string   `json:"call_id"`
	Revision        int32    `json:"revision"`
	Tool            string   `json:"tool"`
	ToolVersion     string   `json:"tool_version"`
	ArgumentsHash   string   `json:"arguments_hash"`
	ResourceVersion string   `json:"resource_version"`
	PlanHash        string   `json:"plan_hash"`
	Nonce           string   `json:"nonce"`
}

// wireNames are the claims of a token, no more and no less.
var wireNames = []string{
	"iss", "sub", "jti", "iat", "exp", "decision", "tenant", "run_id", "call_id", "revision", "tool", "tool_version",
	"arguments_hash", "resource_version", "plan_hash", "nonce",
}

// unread are the claims of a token whose signature has not been checked: they
// are kept as text, and nobody can ask them anything.
type unread json.RawMessage

func (u *unread) UnmarshalJSON(text []byte) error { *u = slices.Clone(text); return nil }
func (u unread) MarshalJSON() ([]byte, error)     { return u, nil }

func (unread) GetExpirationTime() (*jwt.NumericDate, error) { return nil, nil }
func (unread) GetIssuedAt() (*jwt.NumericDate, error)       { return nil, nil }
func (unread) GetNotBefore() (*jwt.NumericDate, error)      { return nil, nil }
func (unread) GetIssuer() (string, error)                   { return "", nil }
func (unread) GetSubject() (string, error)                  { return "", nil }
func (unread) GetAudience() (jwt.ClaimStrings, error)       { return nil, nil }

// Sign returns the token that says c. It returns an error for claims that no
// Verifier would believe, whatever the time.
func (k Key) Sign(c Claims) (string, error) {
	if k.IsZero() {
		return "", errors.New("sign approval: there is no key")
	}
	if err := c.check(); err != nil {
		return "", fmt.Errorf("sign approval: %w", err)
	}
	text, err := json.Marshal(wire{
		Issuer: issuer, Approver: c.Approver, TokenID: c.TokenID, IssuedAt: c.IssuedAt.Unix(), ExpiresAt: c.ExpiresAt.Unix(),
		Decision: c.Decision, Tenant: c.Tenant, RunID: c.RunID, CallID: c.CallID, Revision: int32(c.Revision),
		Tool: c.Tool, ToolVersion: c.ToolVersion, ArgumentsHash: c.ArgumentsHash,
		ResourceVersion: c.ResourceVersion, PlanHash: c.PlanHash, Nonce: c.Nonce,
	})
	if err != nil {
		return "", fmt.Errorf("sign approval: %w", err)
	}
	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, unread(text))
	token.Header["typ"] = tokenType
	token.Header["kid"] = keyID(k.public())
	signed, err := token.SignedString(k.private())
	if err != nil {
		return "", fmt.Errorf("sign approval: %w", err)
	}
	if len(signed) > agent.MaxTokenBytes {
		return "", fmt.Errorf("sign approval: the token has %d bytes, the limit is %d", len(signed), agent.MaxTokenBytes)
	}
	return signed, nil
}

// Verifier checks tokens against the public keys that a worker trusts. It is
// safe for concurrent use.
type Verifier struct {
	keys   map[string]ed25519.PublicKey
	parser *jwt.Parser
}

// NewVerifier makes a Verifier of public keys as Key.Public returns them. With
// no keys it believes nothing.
func NewVerifier(publicKeys ...string) (*Verifier, error) {
	v := &Verifier{
		keys: make(map[string]ed25519.PublicKey, len(publicKeys)),
		// Claims are checked here and not by the library, which knows neither of
		// required claims nor of unknown ones.
		parser: jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}), jwt.WithStrictDecoding(), jwt.WithoutClaimsValidation()),
	}
	for i, text := range publicKeys {
		raw, err := decode32(text)
		if err != nil {
			return nil, fmt.Errorf("approval public key %d: %w", i+1, err)
		}
		v.keys[keyID(raw)] = raw
	}
	return v, nil
}

// Keys returns the IDs of the keys that v trusts, sorted.
func (v *Verifier) Keys() []string {
	ids := make([]string, 0, len(v.keys))
	for id := range v.keys {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

var errNotApproval = errors.New("not an approval token")

// Verify reads a token. The code is empty if it is to be believed at now, else
// RefusedMalformed, RefusedSignature or RefusedExpired. Claims are returned if
// the signature was good and they could be read, so that a refusal can name the
// approver; else they are empty. Whether a plan waits for them, and whether the
// approver may decide, is not asked here.
func (v *Verifier) Verify(token string, now time.Time) (Claims, agent.RefusalCode) {
	// The base64 of the standard library passes over line ends.
	if len(token) > agent.MaxTokenBytes || strings.ContainsAny(token, "\r\n") {
		return Claims{}, agent.RefusedMalformed
	}
	var text unread
	_, err := v.parser.ParseWithClaims(token, &text, v.key)
	switch {
	case errors.Is(err, jwt.ErrTokenMalformed), errors.Is(err, errNotApproval):
		return Claims{}, agent.RefusedMalformed
	case err != nil:
		return Claims{}, agent.RefusedSignature
	}
	c, err := readClaims(string(text))
	switch {
	case err != nil:
		return Claims{}, agent.RefusedMalformed
	case c.IssuedAt.After(now.Add(clockAhead)):
		return c, agent.RefusedMalformed
	case !now.Before(c.ExpiresAt):
		return c, agent.RefusedExpired
	}
	return c, ""
}

// key finds the key of a token by its header, of which nothing but the three
// known fields is accepted.
func (v *Verifier) key(t *jwt.Token) (any, error) {
	kid, named := t.Header["kid"].(string)
	if t.Header["typ"] != tokenType || !named || len(t.Header) != 3 {
		return nil, errNotApproval
	}
	public, known := v.keys[kid]
	if !known {
		return nil, errors.New("unknown key")
	}
	return public, nil
}

// readClaims reads the claims of a token whose signature was good.
func readClaims(text string) (Claims, error) {
	value, err := schema.Parse(text, agent.MaxTokenBytes)
	if err != nil {
		return Claims{}, err
	}
	object, _ := value.(map[string]any)
	if len(object) != len(wireNames) {
		return Claims{}, errNotApproval
	}
	// Names are matched here because encoding/json matches them in any case, and
	// takes null for a value that is absent.
	for _, name := range wireNames {
		if object[name] == nil {
			return Claims{}, errNotApproval
		}
	}
	var w wire
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		return Claims{}, errNotApproval
	}
	if w.Issuer != issuer {
		return Claims{}, errNotApproval
	}
	c := Claims{
		TokenID: w.TokenID, Decision: w.Decision, Approver: w.Approver, Tenant: w.Tenant, RunID: w.RunID, CallID: w.CallID,
		Revision: int(w.Revision), Tool: w.Tool, ToolVersion: w.ToolVersion, ArgumentsHash: w.ArgumentsHash,
		ResourceVersion: w.ResourceVersion, PlanHash: w.PlanHash, Nonce: w.Nonce,
		IssuedAt: time.Unix(w.IssuedAt, 0).UTC(), ExpiresAt: time.Unix(w.ExpiresAt, 0).UTC(),
	}
	return c, c.check()
}

// check names the first claim at fault, without its value.
func (c Claims) check() error {
	for _, id := range []struct{ name, value string }{
		{"token ID", c.TokenID}, {"approver", c.Approver}, {"tenant", c.Tenant}, {"run ID", c.RunID},
	} {
		if !agent.ValidID(id.value) {
			return fmt.Errorf("the %s must be 1 to 128 ASCII letters, digits or . _ : @ -", id.name)
		}
	}
	for _, text := range []struct{ name, value string }{
		{"call ID", c.CallID}, {"tool", c.Tool}, {"tool version", c.ToolVersion}, {"nonce", c.Nonce},
	} {
		if text.value == "" {
			return fmt.Errorf("the %s is missing", text.name)
		}
	}
	life := c.ExpiresAt.Truncate(time.Second).Sub(c.IssuedAt.Truncate(time.Second))
	switch {
	case !c.Decision.Valid():
		return errors.New("the decision is neither approve nor decline")
	case c.Revision < 1 || int64(c.Revision) > int64(1)<<31-1:
		return errors.New("the revision is out of range")
	case !isSHA256(c.ArgumentsHash):
		return errors.New("the arguments hash is not 64 hexadecimal digits")
	case !isSHA256(c.PlanHash):
		return errors.New("the plan hash is not 64 hexadecimal digits")
	case c.IssuedAt.Unix() <= 0 || life <= 0:
		return errors.New("the token expires before it is issued")
	case life > MaxTTL:
		return fmt.Errorf("the token lives longer than %s", MaxTTL)
	}
	return nil
}

func isSHA256(text string) bool {
	raw, err := hex.DecodeString(text)
	// DecodeString takes capitals as well.
	return err == nil && len(raw) == 32 && hex.EncodeToString(raw) == text
}

// Nonce returns 128 random bits as 32 hexadecimal digits: for plans and tokens.
func Nonce() string {
	raw := make([]byte, 16)
	_, _ = rand.Read(raw)
	return hex.EncodeToString(raw)
}
