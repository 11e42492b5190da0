package vault_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/prf"
	"github.com/tink-crypto/tink-go/v2/tink"
	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/internal/vault"
)

var (
	ann = vault.Owner{Tenant: "acme", Subject: "ann"}
	bob = vault.Owner{Tenant: "acme", Subject: "bob"}
)

// local returns a key-encryption key and its text.
func local(t testing.TB) (tink.AEAD, string) {
	t.Helper()
	text, err := vault.GenerateLocal()
	if err != nil {
		t.Fatal(err)
	}
	kek, err := vault.Local(text)
	if err != nil {
		t.Fatal(err)
	}
	return kek, text
}

func setup(t testing.TB) (*vault.Vault, *vault.Keys, vault.Wrapped) {
	t.Helper()
	kek, _ := local(t)
	v := vault.New(kek)
	keys, wrapped, err := v.Make(ann)
	if err != nil {
		t.Fatal(err)
	}
	return v, keys, wrapped
}

func seal(t testing.TB, keys *vault.Keys, content string, bound []byte) []byte {
	t.Helper()
	sealed, err := keys.Seal([]byte(content), bound)
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

func TestSealOpensInItsPlaceOnly(t *testing.T) {
	t.Parallel()
	_, keys, _ := setup(t)
	place := vault.Bind("message", "acme", "m-1", "content")
	sealed := seal(t, keys, "restart payment-api", place)
	if len(sealed) != len("restart payment-api")+vault.Overhead {
		t.Errorf("%d bytes were sealed to %d, want %d more", len("restart payment-api"), len(sealed), vault.Overhead)
	}
	if bytes.Contains(sealed, []byte("payment")) {
		t.Error("the sealed value holds the content")
	}
	if again := seal(t, keys, "restart payment-api", place); bytes.Equal(sealed, again) {
		t.Error("the same content gives the same sealed value")
	}
	if content, err := keys.Open(sealed, place); err != nil || string(content) != "restart payment-api" {
		t.Errorf("opened %q, %v", content, err)
	}
	for name, other := range map[string][]byte{
		"another row":    vault.Bind("message", "acme", "m-2", "content"),
		"another column": vault.Bind("message", "acme", "m-1", "note"),
		"another tenant": vault.Bind("message", "umbrella", "m-1", "content"),
		"another table":  vault.Bind("tool_call", "acme", "m-1", "content"),
		"a part less":    vault.Bind("message", "acme", "m-1"),
		"nothing":        nil,
	} {
		if content, err := keys.Open(sealed, other); !errors.Is(err, vault.ErrSealed) || content != nil {
			t.Errorf("%s: opened %q, %v", name, content, err)
		}
	}
	for i := range sealed {
		damaged := bytes.Clone(sealed)
		damaged[i] ^= 1
		if _, err := keys.Open(damaged, place); !errors.Is(err, vault.ErrSealed) {
			t.Errorf("byte %d was changed: %v", i, err)
		}
	}
	for _, short := range [][]byte{nil, sealed[:4], sealed[:vault.Overhead-1]} {
		if _, err := keys.Open(short, place); !errors.Is(err, vault.ErrSealed) {
			t.Errorf("%d bytes: %v", len(short), err)
		}
	}
	if content, err := keys.Open(seal(t, keys, "", place), place); err != nil || len(content) != 0 {
		t.Errorf("nothing: %q, %v", content, err)
	}
}

// Moving the border between two parts makes another place.
func TestBindKeepsPartsApart(t *testing.T) {
	t.Parallel()
	if got, want := string(vault.Bind("message", "acme", "m-1")), "fairlead/1\nmessage\nacme\nm-1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	part := rapid.StringMatching(`[A-Za-z0-9._:@-]{0,12}`)
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SliceOfN(part, 1, 4).Draw(t, "a")
		b := rapid.SliceOfN(part, 1, 4).Draw(t, "b")
		if same := strings.Join(a, "\n") == strings.Join(b, "\n"); same != bytes.Equal(vault.Bind(a...), vault.Bind(b...)) {
			t.Fatalf("%q and %q", a, b)
		}
	})
}

func TestKeysBelongToTheirOwner(t *testing.T) {
	t.Parallel()
	v, keys, wrapped := setup(t)
	place := vault.Bind("message", "acme", "m-1", "content")
	sealed := seal(t, keys, "hello", place)

	again, err := v.Unwrap(ann, wrapped)
	if err != nil {
		t.Fatal(err)
	}
	if content, err := again.Open(sealed, place); err != nil || string(content) != "hello" {
		t.Errorf("unwrapped keys open %q, %v", content, err)
	}
	for name, owner := range map[string]vault.Owner{
		"another subject": bob,
		"another tenant":  {Tenant: "umbrella", Subject: "ann"},
		"moved border":    {Tenant: "acme\nann", Subject: ""},
		"the deployment":  {},
	} {
		if _, err := v.Unwrap(owner, wrapped); !errors.Is(err, vault.ErrWrapped) {
			t.Errorf("%s unwraps ann's keys: %v", name, err)
		}
	}
	swapped := vault.Wrapped{Data: wrapped.Hash, Hash: wrapped.Data}
	if _, err := v.Unwrap(ann, swapped); !errors.Is(err, vault.ErrWrapped) {
		t.Errorf("the two keysets were swapped: %v", err)
	}
	if _, err := v.Unwrap(ann, vault.Wrapped{}); !errors.Is(err, vault.ErrWrapped) {
		t.Errorf("destroyed keys: %v", err)
	}
	other, _, err := v.Make(bob)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Open(sealed, place); !errors.Is(err, vault.ErrSealed) {
		t.Errorf("bob's keys open ann's value: %v", err)
	}
}

func TestWrongKeyEncryptionKey(t *testing.T) {
	t.Parallel()
	_, _, wrapped := setup(t)
	kek, _ := local(t)
	if _, err := vault.New(kek).Unwrap(ann, wrapped); !errors.Is(err, vault.ErrWrapped) {
		t.Errorf("got %v", err)
	}
}

// failing is a KMS that cannot be reached.
type failing struct{}

func (failing) Encrypt(_, _ []byte) ([]byte, error) {
	return nil, fmt.Errorf("kms.example.org: no answer: %w", context.DeadlineExceeded)
}

func (failing) Decrypt(_, _ []byte) ([]byte, error) {
	return nil, fmt.Errorf("kms.example.org: no answer: %w", context.DeadlineExceeded)
}

// The text is the same whatever the KMS says: errors are shown where its address
// is nobody's business.
func TestAKMSThatFails(t *testing.T) {
	t.Parallel()
	_, keys, wrapped := setup(t)
	v := vault.New(failing{})
	_, unwrap := v.Unwrap(ann, wrapped)
	_, _, made := v.Make(ann)
	_, wrap := v.Wrap(ann, keys)
	_, _, rotate := v.Rotate(ann, keys)
	for name, err := range map[string]error{"unwrap": unwrap, "make": made, "wrap": wrap, "rotate": rotate} {
		if !errors.Is(err, vault.ErrWrapped) || err.Error() != vault.ErrWrapped.Error() || strings.Contains(err.Error(), "kms.example.org") {
			t.Errorf("%s: %v", name, err)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: the deadline of the KMS counts as the caller's", name)
		}
		if cause := vault.Cause(fmt.Errorf("show run: %w", err)); cause == nil || !strings.Contains(cause.Error(), "kms.example.org: no answer") {
			t.Errorf("%s: caused by %v", name, cause)
		}
	}
	if cause := vault.Cause(vault.ErrSealed); cause != nil {
		t.Errorf("another error is caused by %v", cause)
	}
}

func TestRotate(t *testing.T) {
	t.Parallel()
	v, keys, _ := setup(t)
	place := vault.Bind("message", "acme", "m-1", "content")
	old := seal(t, keys, "before", place)
	if keys.Stale(old) {
		t.Error("a value under the only key is stale")
	}
	rotated, wrapped, err := v.Rotate(ann, keys)
	if err != nil {
		t.Fatal(err)
	}
	newer := seal(t, rotated, "after", place)
	if !rotated.Stale(old) || rotated.Stale(newer) || !keys.Stale(newer) {
		t.Errorf("stale: old %v, new %v, new to the old keys %v", rotated.Stale(old), rotated.Stale(newer), keys.Stale(newer))
	}
	if content, err := rotated.Open(old, place); err != nil || string(content) != "before" {
		t.Errorf("the old value opens as %q, %v", content, err)
	}
	if _, err := keys.Open(newer, place); !errors.Is(err, vault.ErrSealed) {
		t.Errorf("the old keys open the new value: %v", err)
	}
	stored, err := v.Unwrap(ann, wrapped)
	if err != nil {
		t.Fatal(err)
	}
	for want, sealed := range map[string][]byte{"before": old, "after": newer} {
		if content, err := stored.Open(sealed, place); err != nil || string(content) != want {
			t.Errorf("as stored: %q, %v, want %q", content, err, want)
		}
	}
	first, err := keys.Hash([]byte("yes"))
	second, err2 := stored.Hash([]byte("yes"))
	if err != nil || err2 != nil || !bytes.Equal(first, second) || len(first) != 32 {
		t.Errorf("a hash changed with the key: %x, %x, %v, %v", first, second, err, err2)
	}
}

func TestHashIsOfOneSubject(t *testing.T) {
	t.Parallel()
	v, keys, _ := setup(t)
	other, _, err := v.Make(bob)
	if err != nil {
		t.Fatal(err)
	}
	a, err := keys.Hash([]byte("yes"))
	b, err2 := other.Hash([]byte("yes"))
	c, err3 := keys.Hash([]byte("no"))
	if err != nil || err2 != nil || err3 != nil || bytes.Equal(a, b) || bytes.Equal(a, c) {
		t.Errorf("%x, %x, %x: %v %v %v", a, b, c, err, err2, err3)
	}
}

// opens reports what v unwraps of what the others wrapped.
func opens(t testing.TB, v *vault.Vault, by ...*vault.Vault) (which string) {
	t.Helper()
	for _, other := range by {
		_, wrapped, err := other.Make(ann)
		if err != nil {
			t.Fatal(err)
		}
		switch _, err := v.Unwrap(ann, wrapped); {
		case err == nil:
			which += "+"
		case errors.Is(err, vault.ErrWrapped):
			which += "-"
		default:
			t.Fatal(err)
		}
	}
	return which
}

// The key-encryption key is changed in two roll-outs. During each of them
// programs with the text before and after work beside one another.
func TestRotateLocal(t *testing.T) {
	t.Parallel()
	change := func(text string, by func(string) (string, error)) (string, *vault.Vault) {
		t.Helper()
		newer, err := by(text)
		if err != nil || newer == text {
			t.Fatalf("%q, %v", newer, err)
		}
		kek, err := vault.Local(newer)
		if err != nil {
			t.Fatal(err)
		}
		return newer, vault.New(kek)
	}
	kek, text := local(t)
	before := vault.New(kek)
	text, rotated := change(text, vault.RotateLocal)
	text, promoted := change(text, vault.PromoteLocal)
	for name, test := range map[string]struct {
		v    *vault.Vault
		want string
	}{"before": {before, "++-"}, "rotated": {rotated, "+++"}, "promoted": {promoted, "+++"}} {
		if got := opens(t, test.v, before, rotated, promoted); got != test.want {
			t.Errorf("a program with the text %s opens %s of what those before, rotated and promoted wrap, want %s", name, got, test.want)
		}
	}
	// And once more: the newest of three.
	text, again := change(text, vault.RotateLocal)
	_, last := change(text, vault.PromoteLocal)
	if got := opens(t, again, before, rotated, promoted, again, last); got != "+++++" {
		t.Errorf("of three keys: %s", got)
	}
	if got := opens(t, promoted, again, last); got != "+-" {
		t.Errorf("the third key is used: %s", got)
	}
}

// What has not been rolled out is not put to use, nor is another key added.
func TestRotateLocalInOrder(t *testing.T) {
	t.Parallel()
	_, text := local(t)
	if got, err := vault.PromoteLocal(text); err == nil || got != "" || !strings.Contains(err.Error(), "--rotate") {
		t.Errorf("nothing to promote: %q, %v", got, err)
	}
	rotated, err := vault.RotateLocal(text)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := vault.RotateLocal(rotated); err == nil || got != "" || !strings.Contains(err.Error(), "--promote") {
		t.Errorf("two at once: %q, %v", got, err)
	}
	promoted, err := vault.PromoteLocal(rotated)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := vault.PromoteLocal(promoted); err == nil || got != "" {
		t.Errorf("promoted twice: %q, %v", got, err)
	}
}

func TestMalformedLocalKeyIsNotRepeated(t *testing.T) {
	t.Parallel()
	_, good := local(t)
	handle, err := keyset.NewHandle(prf.HMACSHA256PRFKeyTemplate())
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := insecurecleartextkeyset.Write(handle, keyset.NewBinaryWriter(&b)); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"nothing":         "",
		"no base64":       "hunter2canary",
		"no keyset":       base64.StdEncoding.EncodeToString([]byte("hunter2canary")),
		"half a key":      good[:len(good)/2],
		"another purpose": base64.StdEncoding.EncodeToString(b.Bytes()),
	} {
		_, err := vault.Local(text)
		_, rotateErr := vault.RotateLocal(text)
		_, promoteErr := vault.PromoteLocal(text)
		for _, err := range []error{err, rotateErr, promoteErr} {
			if err == nil || !strings.Contains(err.Error(), "starter encryption-key") {
				t.Errorf("%s: %v", name, err)
			} else if text != "" && strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: the error repeats the key: %v", name, err)
			}
		}
	}
}

func BenchmarkSeal(b *testing.B) {
	_, keys, _ := setup(b)
	place, content := vault.Bind("message", "acme", "m-1", "content"), bytes.Repeat([]byte("x"), 1<<10)
	for b.Loop() {
		sealed, err := keys.Seal(content, place)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := keys.Open(sealed, place); err != nil {
			b.Fatal(err)
		}
	}
}
