package vault

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"
)

// errLocal never repeats the text: it is a secret.
var errLocal = errors.New("the key-encryption key is malformed: expected what `starter encryption-key` prints")

var (
	errNotPromoted = errors.New("the key that was added last is not in use yet: nothing was added; when all programs have the present text, promote that key (`starter encryption-key --promote`)")
	errPromoted    = errors.New("the newest key is in use already: add one first (`starter encryption-key --rotate`) and give the text to all programs")
)

// Local reads a key-encryption key that this package's functions made. In
// production a KMS keeps the key; this form is for development, and for those
// who keep the variable as safe as a KMS would.
func Local(text string) (tink.AEAD, error) {
	_, kek, err := readLocal(text)
	return kek, err
}

// GenerateLocal makes a key-encryption key: a Tink keyset in base64.
func GenerateLocal() (string, error) {
	handle, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return "", fmt.Errorf("make key-encryption key: %w", err)
	}
	return writeLocal(handle)
}

// RotateLocal adds a new key that only opens: what is wrapped goes under the
// same key as before. Give the text to all programs, then use PromoteLocal. One
// key is added at a time.
func RotateLocal(text string) (string, error) {
	return changeLocal(text, func(handle *keyset.Handle, manager *keyset.Manager) error {
		newest, err := newestOf(handle)
		if err == nil && !newest.IsPrimary() {
			return errNotPromoted
		}
		if err == nil {
			_, err = manager.Add(aead.AES256GCMKeyTemplate())
		}
		return err
	})
}

// PromoteLocal makes the newest key the one that wraps from then on. A program
// with the text of RotateLocal opens what it wraps, one with an older text does
// not; what older keys wrapped opens everywhere.
func PromoteLocal(text string) (string, error) {
	return changeLocal(text, func(handle *keyset.Handle, manager *keyset.Manager) error {
		newest, err := newestOf(handle)
		if err == nil && newest.IsPrimary() {
			return errPromoted
		}
		if err == nil {
			err = manager.SetPrimary(newest.KeyID())
		}
		return err
	})
}

// changeLocal has the keys of a text changed. They stand in the order in which
// they were added.
func changeLocal(text string, change func(*keyset.Handle, *keyset.Manager) error) (string, error) {
	handle, _, err := readLocal(text)
	if err != nil {
		return "", err
	}
	manager := keyset.NewManagerFromHandle(handle)
	if err := change(handle, manager); err != nil {
		return "", fmt.Errorf("change key-encryption key: %w", err)
	}
	if handle, err = manager.Handle(); err != nil {
		return "", fmt.Errorf("change key-encryption key: %w", err)
	}
	return writeLocal(handle)
}

func newestOf(handle *keyset.Handle) (*keyset.Entry, error) { return handle.Entry(handle.Len() - 1) }

func readLocal(text string) (*keyset.Handle, tink.AEAD, error) {
	blob, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, nil, errLocal
	}
	handle, err := insecurecleartextkeyset.Read(keyset.NewBinaryReader(bytes.NewReader(blob)))
	if err != nil {
		return nil, nil, errLocal
	}
	kek, err := aead.New(handle)
	if err != nil {
		return nil, nil, errLocal
	}
	return handle, kek, nil
}

func writeLocal(handle *keyset.Handle) (string, error) {
	var b bytes.Buffer
	if err := insecurecleartextkeyset.Write(handle, keyset.NewBinaryWriter(&b)); err != nil {
		return "", fmt.Errorf("write key-encryption key: %w", err)
	}
	return base64.StdEncoding.EncodeToString(b.Bytes()), nil
}
