package approval_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/approval"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	k := approval.NewKey()
	again, err := approval.ParseKey(k.Encode())
	if err != nil || again.Public() != k.Public() || again.Encode() != k.Encode() {
		t.Errorf("a key is not read back: %v", err)
	}
	if approval.NewKey().Encode() == k.Encode() {
		t.Error("two new keys are equal")
	}
	secret := k.Encode()
	for name, text := range map[string]string{
		"empty": "", "short": secret[:40], "long": secret + "AAAA", "no padding": strings.TrimSuffix(secret, "="),
		"a line end": secret + "\n", "URL alphabet": strings.Repeat("-", 43) + "=", "hexadecimal": hex.EncodeToString(make([]byte, 32)),
		"loose bits": strings.Repeat("A", 42) + "B=",
	} {
		for form, err := range map[string]error{
			"private": func() error { _, err := approval.ParseKey(text); return err }(),
			"public":  approval.CheckPublicKey(text),
			"trusted": func() error { _, err := approval.NewVerifier(k.Public(), text); return err }(),
		} {
			if err == nil {
				t.Errorf("%s, %s: accepted", name, form)
			} else if text != "" && strings.Contains(err.Error(), text) {
				t.Errorf("%s, %s: the error repeats it: %v", name, form, err)
			}
		}
	}
	if err := approval.CheckPublicKey(k.Public()); err != nil {
		t.Error(err)
	}
}

// TestKeyKeepsItsSecret prints a key in every form, and inside a struct that fmt
// looks into.
func TestKeyKeepsItsSecret(t *testing.T) {
	t.Parallel()
	k := approval.NewKey()
	seed, _ := base64.StdEncoding.DecodeString(k.Encode())
	encoded, err := json.Marshal(map[string]any{"key": k})
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{string(encoded), k.String()}
	holder := struct{ key approval.Key }{k}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		texts = append(texts, fmt.Sprintf(verb, k), fmt.Sprintf(verb, &k), fmt.Sprintf(verb, holder), fmt.Sprintf(verb, []approval.Key{k}))
	}
	secrets := []string{
		k.Encode(), hex.EncodeToString(seed), strings.ToUpper(hex.EncodeToString(seed)), fmt.Sprint(seed[:4])[1:10], fmt.Sprintf("%#v", seed[:3])[7:20],
	}
	for _, text := range texts {
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("the secret %q is in %q", secret, text)
			}
		}
	}
}
