package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tink-crypto/tink-go/v2/core/registry"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/internal/vault"
)

// Encryption names the key-encryption key, under which the keys of all subjects
// are kept. Workers and the programs that show content need the same one.
type Encryption struct {
	// Key is the key itself (FAIRLEAD_ENCRYPTION_KEY), as starter encryption-key
	// prints it; empty or well-formed.
	Key Secret
	// KeyURI names a key that a KMS keeps (FAIRLEAD_ENCRYPTION_KEY_URI), in the
	// form of the Tink integration that the program has registered.
	KeyURI string
}

// Configured reports whether a key is named.
func (e Encryption) Configured() bool { return e.Key != "" || e.KeyURI != "" }

// Codec is who may read histories through the codec server.
type Codec struct {
	// Operators come from FAIRLEAD_CODEC_TOKENS, separated by commas.
	Operators []Operator
}

// Operator is one who may have payloads of histories encrypted and decrypted.
type Operator struct {
	Name string
	// Tenant, if not empty, is the only one whose payloads the operator may read.
	Tenant string
	Token  Secret
}

// Keys of Encryption and Codec, which name them in errors and give their
// variables.
const (
	keyEncryptionKey    = "encryption.key"
	keyEncryptionKeyURI = "encryption.key_uri"
	keyCodecTokens      = "codec.tokens"
)

func (e Encryption) validate() error {
	if e.Key != "" && e.KeyURI != "" {
		return &Error{Key: keyEncryptionKey, Problem: fmt.Sprintf("%s is set as well; set one of the two, the other one's content could not be read", Variable(keyEncryptionKeyURI))}
	}
	if e.Key != "" {
		if _, err := vault.Local(e.Key.Value()); err != nil {
			return &Error{Key: keyEncryptionKey, Problem: err.Error()}
		}
	}
	// The value is not repeated: it may be the key itself by mistake.
	if scheme, rest, ok := strings.Cut(e.KeyURI, "://"); e.KeyURI != "" && (!ok || scheme == "" || rest == "") {
		return &Error{Key: keyEncryptionKeyURI, Problem: "must be the URI of a key in a KMS, such as gcp-kms://projects/..."}
	}
	return nil
}

// RequireEncryption returns an error that says how to make a key, if none is
// named.
func (c Config) RequireEncryption() error {
	if c.Encryption.Configured() {
		return nil
	}
	return &Error{Key: keyEncryptionKey, Problem: "content is encrypted and no key-encryption key is named. Make one with `starter encryption-key`, give it to every worker and starter of this database, and keep it: what was stored cannot be read without"}
}

// KeyEncryption returns the key-encryption key that is named, or an error
// that says how to name one. It asks no KMS for anything yet.
func (c Config) KeyEncryption() (tink.AEAD, error) {
	if err := c.RequireEncryption(); err != nil {
		return nil, err
	}
	if c.Encryption.Key != "" {
		kek, err := vault.Local(c.Encryption.Key.Value())
		if err != nil {
			return nil, &Error{Key: keyEncryptionKey, Problem: err.Error()}
		}
		return kek, nil
	}
	scheme, _, _ := strings.Cut(c.Encryption.KeyURI, "://")
	client, err := registry.GetKMSClient(c.Encryption.KeyURI)
	if err != nil {
		return nil, &Error{Key: keyEncryptionKeyURI, Problem: fmt.Sprintf("this program has no KMS client for %s:// keys like this one: register one in its main function, before the settings are read (Tink's registry.RegisterKMSClient)", scheme)}
	}
	kek, err := client.GetAEAD(c.Encryption.KeyURI)
	if err != nil {
		return nil, &Error{Key: keyEncryptionKeyURI, Problem: fmt.Sprintf("the KMS client for %s:// does not take it: %v", scheme, err)}
	}
	return kek, nil
}

// MinTokenChars is the length of the shortest token of an Operator.
const MinTokenChars = 32

var tokenPattern = regexp.MustCompile(`^[A-Za-z0-9._~+/=-]+$`)

// parseOperators reads NAME:TOKEN and NAME:TENANT:TOKEN, separated by commas. A
// tenant may contain colons, names and tokens may not. Errors repeat nothing.
func parseOperators(list string) ([]Operator, error) {
	if list == "" {
		return nil, nil
	}
	var operators []Operator
	for i, text := range strings.Split(list, ",") {
		refuse := func(problem string) error {
			return &Error{Key: keyCodecTokens, Problem: fmt.Sprintf("entry %d %s; entries are NAME:TOKEN, or NAME:TENANT:TOKEN for one tenant's payloads alone, separated by commas", i+1, problem)}
		}
		name, rest, ok := strings.Cut(strings.TrimSpace(text), ":")
		if !ok {
			return nil, refuse("has no name")
		}
		o := Operator{Name: name, Token: Secret(rest)}
		if last := strings.LastIndexByte(rest, ':'); last >= 0 {
			o.Tenant, o.Token = rest[:last], Secret(rest[last+1:])
			if !agent.ValidID(o.Tenant) {
				return nil, refuse("has a tenant that is not 1 to 128 ASCII letters, digits or . _ : @ -")
			}
		}
		switch {
		case !agent.ValidID(name):
			return nil, refuse("has a name that is not 1 to 128 ASCII letters, digits or . _ @ -")
		case len(o.Token) < MinTokenChars:
			return nil, refuse(fmt.Sprintf("has a token of less than %d characters; make one with: openssl rand -hex 32", MinTokenChars))
		case !tokenPattern.MatchString(o.Token.Value()):
			return nil, refuse("has a token with other characters than ASCII letters, digits and . _ ~ + / = -")
		case slices.ContainsFunc(operators, func(other Operator) bool { return other.Name == name }):
			return nil, refuse("has a name that was there before")
		case slices.ContainsFunc(operators, func(other Operator) bool { return other.Token == o.Token }):
			return nil, refuse("has the token of another operator, so that a log could not tell them apart")
		}
		operators = append(operators, o)
	}
	return operators, nil
}

// RequireOperators returns an error that says how to name one, if there is none.
func (c Config) RequireOperators() error {
	if len(c.Codec.Operators) > 0 {
		return nil
	}
	return &Error{Key: keyCodecTokens, Problem: fmt.Sprintf("nobody may read anything: set it to NAME:TOKEN with a token of at least %d characters (openssl rand -hex 32 makes one)", MinTokenChars)}
}

func (c Codec) redacted() Codec {
	operators := slices.Clone(c.Operators)
	for i := range operators {
		operators[i].Token = Secret(operators[i].Token.String())
	}
	return Codec{operators}
}
