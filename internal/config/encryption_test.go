package config_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tink-crypto/tink-go/v2/core/registry"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/vault"
)

func newKey(t *testing.T) string {
	t.Helper()
	text, err := vault.GenerateLocal()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

var owner = vault.Owner{Tenant: "acme", Subject: "ann"}

func TestEncryptionKey(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	c, err := load(t, "", map[string]string{"FAIRLEAD_ENCRYPTION_KEY": key})
	if err != nil {
		t.Fatal(err)
	}
	if c.Encryption.Key.Value() != key || !c.Encryption.Configured() || c.RequireEncryption() != nil {
		t.Errorf("the key was not read: %+v", c.Encryption)
	}
	mine, err := c.KeyEncryption()
	if err != nil {
		t.Fatal(err)
	}
	// It is this key, and of no other.
	_, wrapped, err := vault.New(mine).Make(owner)
	if err != nil {
		t.Fatal(err)
	}
	kek, err := vault.Local(key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := vault.New(kek).Unwrap(owner, wrapped); err != nil {
		t.Error(err)
	}

	redacted := c.Redacted()
	encoded, err := json.Marshal(redacted)
	if err != nil {
		t.Fatal(err)
	}
	for form, text := range map[string]string{
		"%+v": fmt.Sprintf("%+v", c.Encryption), "%#v": fmt.Sprintf("%#v", c.Encryption), "JSON": string(encoded), "redacted": redacted.Encryption.Key.Value(),
	} {
		if strings.Contains(text, key) || !strings.Contains(text, "(set)") {
			t.Errorf("%s: %s", form, text)
		}
	}
}

func TestEncryptionKeyRefused(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	for name, test := range map[string]struct{ key, uri, want string }{
		"malformed":  {"hunter2canary", "", "starter encryption-key"},
		"half":       {key[:len(key)/2], "", "FAIRLEAD_ENCRYPTION_KEY)"},
		"both":       {key, "test-kms://k", "set one of the two"},
		"no URI":     {"", key, "FAIRLEAD_ENCRYPTION_KEY_URI"},
		"no key":     {"", "test-kms://", "must be the URI"},
		"no scheme":  {"", "://k", "must be the URI"},
		"only a dot": {"", ".", "must be the URI"},
	} {
		_, err := load(t, "", map[string]string{"FAIRLEAD_ENCRYPTION_KEY": test.key, "FAIRLEAD_ENCRYPTION_KEY_URI": test.uri})
		var fault *config.Error
		if !errors.As(err, &fault) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q in it", name, err, test.want)
			continue
		}
		if strings.Contains(err.Error(), "hunter2canary") || strings.Contains(err.Error(), key[:20]) {
			t.Errorf("%s: the error repeats the value: %v", name, err)
		}
	}
}

func TestNoEncryptionKey(t *testing.T) {
	t.Parallel()
	c, err := load(t, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Encryption.Configured() {
		t.Error("configured without a key")
	}
	for _, err := range []error{c.RequireEncryption(), second(c.KeyEncryption())} {
		if err == nil || !strings.Contains(err.Error(), "FAIRLEAD_ENCRYPTION_KEY") || !strings.Contains(err.Error(), "starter encryption-key") {
			t.Errorf("got %v", err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// kms keeps one key under test-kms://good.
type kms struct{ kek tink.AEAD }

func (kms) Supported(uri string) bool { return strings.HasPrefix(uri, "test-kms://") }

func (k kms) GetAEAD(uri string) (tink.AEAD, error) {
	if uri != "test-kms://good" {
		return nil, errors.New("no such key")
	}
	return k.kek, nil
}

func TestKMS(t *testing.T) {
	t.Parallel()
	kek, err := vault.Local(newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	registry.RegisterKMSClient(kms{kek})
	open := func(uri string) (*vault.Vault, error) {
		c, err := load(t, "", map[string]string{"FAIRLEAD_ENCRYPTION_KEY_URI": uri})
		if err != nil {
			t.Fatal(err)
		}
		named, err := c.KeyEncryption()
		if err != nil {
			return nil, err
		}
		return vault.New(named), nil
	}
	v, err := open("test-kms://good")
	if err != nil {
		t.Fatal(err)
	}
	_, wrapped, err := v.Make(owner)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := vault.New(kek).Unwrap(owner, wrapped); err != nil {
		t.Errorf("the KMS did not wrap: %v", err)
	}
	if _, err := open("test-kms://absent"); err == nil || !strings.Contains(err.Error(), "no such key") {
		t.Errorf("an absent key: %v", err)
	}
	if _, err := open("other-kms://good"); err == nil || !strings.Contains(err.Error(), "no KMS client for other-kms://") || !strings.Contains(err.Error(), "RegisterKMSClient") {
		t.Errorf("an unknown KMS: %v", err)
	}
}

func TestCodecTokens(t *testing.T) {
	t.Parallel()
	first, second, third := strings.Repeat("a1", 16), strings.Repeat("b2", 16)+"._~+/=-", strings.Repeat("c3", 20)
	c, err := load(t, "", map[string]string{"FAIRLEAD_CODEC_TOKENS": "olga:" + first + " , support:acme:" + second + ",desk:a:b:" + third})
	if err != nil {
		t.Fatal(err)
	}
	want := []config.Operator{{"olga", "", config.Secret(first)}, {"support", "acme", config.Secret(second)}, {"desk", "a:b", config.Secret(third)}}
	if !slices.Equal(c.Codec.Operators, want) || c.RequireOperators() != nil {
		t.Errorf("got %+v", c.Codec.Operators)
	}
	redacted := c.Redacted()
	for form, text := range map[string]string{"%+v": fmt.Sprintf("%+v", c.Codec), "%#v": fmt.Sprintf("%#v", c.Codec), "redacted": redacted.Codec.Operators[0].Token.Value()} {
		if strings.Contains(text, first) || strings.Contains(text, second) {
			t.Errorf("%s shows a token: %s", form, text)
		}
	}
	if c.Codec.Operators[0].Token.Value() != first {
		t.Error("redaction changed the original")
	}

	for name, test := range map[string]struct{ list, want string }{
		"no name":         {first, "entry 1 has no name"},
		"empty name":      {":" + first, "has a name"},
		"odd name":        {"o lga:" + first, "has a name"},
		"short":           {"olga:" + first[:31], "less than 32"},
		"empty":           {"olga:" + first + ",", "entry 2 has no name"},
		"empty tenant":    {"olga::" + first, "has a tenant"},
		"odd tenant":      {"olga:a cme:" + first, "has a tenant"},
		"no token":        {"olga:acme:", "less than 32"},
		"odd characters":  {"olga:" + first + "!", "other characters"},
		"the same name":   {"olga:" + first + ",olga:" + second, "entry 2 has a name that was there"},
		"the same token":  {"olga:" + first + ",boris:" + first, "entry 2 has the token of another"},
		"swapped by name": {first + ":olga", "less than 32"},
	} {
		_, err := load(t, "", map[string]string{"FAIRLEAD_CODEC_TOKENS": test.list})
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "FAIRLEAD_CODEC_TOKENS") {
			t.Errorf("%s: %v, want %q in it", name, err, test.want)
		} else if strings.Contains(err.Error(), first[:20]) {
			t.Errorf("%s: the error repeats the token: %v", name, err)
		}
	}
	if c, err := load(t, "", nil); err != nil || c.RequireOperators() == nil || !strings.Contains(c.RequireOperators().Error(), "FAIRLEAD_CODEC_TOKENS") {
		t.Errorf("without any: %v", err)
	}
}
