package approval

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
)

// Key is the private key with which approvers' programs sign. It prints nothing
// secret. The zero Key signs nothing.
type Key struct {
	// A function, because fmt looks into the unexported fields of whatever holds
	// a Key, through pointers too.
	private func() ed25519.PrivateKey
}

// ParseKey reads a private key: the 32-byte Ed25519 seed in standard base64. The
// error never repeats the text.
func ParseKey(text string) (Key, error) {
	seed, err := decode32(text)
	if err != nil {
		return Key{}, fmt.Errorf("approval key: %w", err)
	}
	return keyOf(seed), nil
}

// NewKey makes a key from the system's random numbers.
func NewKey() Key {
	seed := make([]byte, ed25519.SeedSize)
	// It does not return an error: the process ends if there is no randomness.
	_, _ = rand.Read(seed)
	return keyOf(seed)
}

func keyOf(seed []byte) Key {
	private := ed25519.NewKeyFromSeed(seed)
	return Key{func() ed25519.PrivateKey { return private }}
}

// IsZero reports whether k is no key.
func (k Key) IsZero() bool { return k.private == nil }

// Encode returns the secret text that ParseKey reads, empty for the zero Key.
func (k Key) Encode() string {
	if k.IsZero() {
		return ""
	}
	return base64.StdEncoding.EncodeToString(k.private().Seed())
}

// Public returns the public key that belongs to k, as NewVerifier reads it;
// empty for the zero Key.
func (k Key) Public() string {
	if k.IsZero() {
		return ""
	}
	return base64.StdEncoding.EncodeToString(k.public())
}

func (k Key) public() ed25519.PublicKey { return k.private().Public().(ed25519.PublicKey) }

// String names the key by its ID and keeps the secret.
func (k Key) String() string {
	if k.IsZero() {
		return "approval key (none)"
	}
	return "approval key " + keyID(k.public())
}

// GoString is String, for %#v.
func (k Key) GoString() string { return k.String() }

// MarshalText is String, for JSON and loggers.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// keyID is the kid of a public key.
func keyID(public ed25519.PublicKey) string {
	sum := sha256.Sum256(public)
	return hex.EncodeToString(sum[:8])
}

// CheckPublicKey returns an error that says what is wrong with the text of a
// public key, without repeating it.
func CheckPublicKey(text string) error {
	if _, err := decode32(text); err != nil {
		return fmt.Errorf("approval public key: %w", err)
	}
	return nil
}

var errNoKey = errors.New("must be 32 bytes in standard base64, 44 characters with the = at the end; starter approval-key makes a pair")

func decode32(text string) ([]byte, error) {
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) != 32 || len(text) != 44 {
		return nil, errNoKey
	}
	return raw, nil
}
