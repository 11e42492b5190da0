// Package vault encrypts content at rest: AES-256-GCM by Tink, under keys of
// each subject that are themselves encrypted under a key-encryption key
// (CONV-6). Who destroys a subject's wrapped keys makes every copy of its
// content unreadable, but for those beside which a copy of the wrapped keys lies:
// a backup with the table subject_key stays readable until it is gone, and after
// a restore from one the destruction has to be repeated.
//
// The package keeps nothing: package db stores wrapped keys and sealed values,
// and package internal/codec seals what enters a history. It imports Tink only.
package vault

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/prf"
	"github.com/tink-crypto/tink-go/v2/tink"
)

// Overhead is how many bytes a sealed value is longer than its content: Tink's
// key prefix, nonce and tag.
const Overhead = 5 + 12 + 16

var (
	// ErrSealed: a value cannot be opened. It was damaged, belongs to another
	// row, or was sealed under keys that are gone.
	ErrSealed = errors.New("sealed value cannot be opened: it is damaged, belongs elsewhere, or its key is gone")
	// ErrWrapped: the key-encryption key did not wrap or unwrap keys. It is not the
	// one that wrapped them, or the KMS that has it fails; Tink does not tell the
	// two apart, so try again. Errors that match it have its text: see Cause.
	ErrWrapped = errors.New("the subject's keys cannot be wrapped or unwrapped: the KMS fails, or this is not the key-encryption key that wrapped them")
)

// wrapError is ErrWrapped with what the key-encryption key said. It does not
// unwrap to that: a deadline that passed in a KMS is none of the caller's.
type wrapError struct{ cause error }

// Error returns the text of ErrWrapped.
func (*wrapError) Error() string { return ErrWrapped.Error() }

// Is matches ErrWrapped.
func (*wrapError) Is(target error) bool { return target == ErrWrapped }

// Cause returns what the key-encryption key said when an error matches
// ErrWrapped, or nil. It holds no key, but may name the KMS and its address: it
// is for logs.
func Cause(err error) error {
	var w *wrapError
	if errors.As(err, &w) {
		return w.cause
	}
	return nil
}

// Vault makes and unwraps the keys of subjects. It is safe for concurrent use.
type Vault struct{ kek tink.AEAD }

// New returns a Vault on a key-encryption key: one of Local, or of a KMS as
// Tink's integrations give it.
func New(kek tink.AEAD) *Vault { return &Vault{kek} }

// Owner is whose keys they are. Both fields empty are the keys of the
// deployment itself, for what belongs to no subject.
type Owner struct{ Tenant, Subject string }

// Wrapped are a subject's keys as they are stored.
type Wrapped struct {
	// Data is the keyset that seals values, Hash the one that hashes.
	Data, Hash []byte
}

// Keys are the keys of one subject. They are safe for concurrent use.
type Keys struct {
	data, hash *keyset.Handle
	seal       tink.AEAD
	mac        *prf.Set
	// prefix begins every value that is sealed under the newest key.
	prefix []byte
}

// Make returns new keys for an owner, and their wrapped form.
func (v *Vault) Make(o Owner) (*Keys, Wrapped, error) {
	data, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return nil, Wrapped{}, fmt.Errorf("make keys: %w", err)
	}
	hash, err := keyset.NewHandle(prf.HMACSHA256PRFKeyTemplate())
	if err != nil {
		return nil, Wrapped{}, fmt.Errorf("make keys: %w", err)
	}
	return v.wrapped(o, data, hash)
}

// Rotate returns keys whose values are sealed under a new key. What was sealed
// before still opens. Hashes stay the same, because they are compared.
func (v *Vault) Rotate(o Owner, k *Keys) (*Keys, Wrapped, error) {
	manager := keyset.NewManagerFromHandle(k.data)
	id, err := manager.Add(aead.AES256GCMKeyTemplate())
	if err == nil {
		err = manager.SetPrimary(id)
	}
	if err != nil {
		return nil, Wrapped{}, fmt.Errorf("rotate keys: %w", err)
	}
	data, err := manager.Handle()
	if err != nil {
		return nil, Wrapped{}, fmt.Errorf("rotate keys: %w", err)
	}
	return v.wrapped(o, data, k.hash)
}

// Wrap returns keys wrapped under the newest key-encryption key.
func (v *Vault) Wrap(o Owner, k *Keys) (Wrapped, error) {
	_, w, err := v.wrapped(o, k.data, k.hash)
	return w, err
}

// Unwrap opens keys as they were stored.
func (v *Vault) Unwrap(o Owner, w Wrapped) (*Keys, error) {
	data, err := v.open(w.Data, o, "data")
	if err != nil {
		return nil, err
	}
	hash, err := v.open(w.Hash, o, "hash")
	if err != nil {
		return nil, err
	}
	return newKeys(data, hash)
}

func (v *Vault) wrapped(o Owner, data, hash *keyset.Handle) (*Keys, Wrapped, error) {
	k, err := newKeys(data, hash)
	if err != nil {
		return nil, Wrapped{}, err
	}
	var w Wrapped
	if w.Data, err = v.close(data, o, "data"); err != nil {
		return nil, Wrapped{}, err
	}
	if w.Hash, err = v.close(hash, o, "hash"); err != nil {
		return nil, Wrapped{}, err
	}
	return k, w, nil
}

func (v *Vault) close(handle *keyset.Handle, o Owner, use string) ([]byte, error) {
	var b bytes.Buffer
	if err := handle.WriteWithAssociatedData(keyset.NewBinaryWriter(&b), v.kek, keysOf(o, use)); err != nil {
		return nil, &wrapError{err}
	}
	return b.Bytes(), nil
}

func (v *Vault) open(wrapped []byte, o Owner, use string) (*keyset.Handle, error) {
	handle, err := keyset.ReadWithAssociatedData(keyset.NewBinaryReader(bytes.NewReader(wrapped)), v.kek, keysOf(o, use))
	if err != nil {
		return nil, &wrapError{err}
	}
	return handle, nil
}

// keysOf binds wrapped keys to their owner and use.
func keysOf(o Owner, use string) []byte { return Bind("keys", o.Tenant, o.Subject, use) }

func newKeys(data, hash *keyset.Handle) (*Keys, error) {
	seal, err := aead.New(data)
	if err != nil {
		return nil, fmt.Errorf("use keys: %w", err)
	}
	mac, err := prf.NewPRFSet(hash)
	if err != nil {
		return nil, fmt.Errorf("use keys: %w", err)
	}
	sample, err := seal.Encrypt(nil, nil)
	if err != nil {
		return nil, fmt.Errorf("use keys: %w", err)
	}
	return &Keys{data, hash, seal, mac, sample[:5]}, nil
}

// Seal encrypts content for the place that bound names. See Bind.
func (k *Keys) Seal(content, bound []byte) ([]byte, error) {
	sealed, err := k.seal.Encrypt(content, bound)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	return sealed, nil
}

// Open returns the content of a sealed value, or ErrSealed.
func (k *Keys) Open(sealed, bound []byte) ([]byte, error) {
	content, err := k.seal.Decrypt(sealed, bound)
	if err != nil {
		return nil, ErrSealed
	}
	return content, nil
}

// Stale reports whether a value was sealed under an older key than the newest.
func (k *Keys) Stale(sealed []byte) bool { return !bytes.HasPrefix(sealed, k.prefix) }

// Hash returns a keyed hash of 32 bytes (HMAC-SHA-256). It compares content
// within one subject, and says nothing to who lacks the key.
func (k *Keys) Hash(content []byte) ([]byte, error) {
	sum, err := k.mac.ComputePrimaryPRF(content, 32)
	if err != nil {
		return nil, fmt.Errorf("hash: %w", err)
	}
	return sum, nil
}

// Bind makes associated data of what names a place: table, tenant, keys and
// column. A value that is moved to another place does not open there. No part
// may contain a line feed, which identifiers do not.
func Bind(parts ...string) []byte {
	const head = "fairlead/1"
	size := len(head) + len(parts)
	for _, part := range parts {
		size += len(part)
	}
	b := append(make([]byte, 0, size), head...)
	for _, part := range parts {
		b = append(b, '\n')
		b = append(b, part...)
	}
	return b
}
