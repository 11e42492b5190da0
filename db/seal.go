package db

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/fairlead/fairlead/db/internal/dbsqlc"
	"github.com/fairlead/fairlead/internal/vault"
)

var (
	// ErrSealed: a value cannot be opened. It was damaged, belongs to another
	// row, or was sealed under keys that are gone.
	ErrSealed = vault.ErrSealed
	// ErrUnsealed: an earlier version stored the value in the clear.
	ErrUnsealed = errors.New("content was stored by an earlier version and is not encrypted yet: run `worker migrate`")
)

// errNoKeys: there is content of a subject that has no keys.
var errNoKeys = fmt.Errorf("the subject has no keys: %w", vault.ErrSealed)

// unsealedMark begins a value that an earlier version stored; Tink's values begin
// with 1.
const unsealedMark = 0

// codeNotText is the SQLSTATE of text that PostgreSQL cannot keep. Sealed values
// are bytes, which keep anything, so text is checked here.
const codeNotText = "22021"

// column is a column of content.
type column struct{ table, name string }

// The columns of content, with the key that names a row of it in its tenant.
var (
	messageContent  = column{"message", "content"}              // message, conversation, role
	attemptResponse = column{"model_attempt", "response"}       // run, step, attempt
	callArguments   = column{"tool_call", "arguments"}          // run, call
	callEnvelope    = column{"tool_call", "envelope"}           // run, call
	callNote        = column{"tool_call", "note"}               // run, call
	resultContent   = column{"tool_result", "content"}          // run, call
	planSummary     = column{"write_plan", "summary"}           // run, call, revision
	intentNote      = column{"write_intent", "settled_note"}    // key
	entryValue      = column{"session_entry", "value"}          // run, call, kind, key
	summaryContent  = column{"conversation_summary", "content"} // conversation, from, to
)

// ring seals and opens the content of one subject. Without keys it does neither
// and err says why.
type ring struct {
	owner   vault.Owner
	version int32
	keys    *vault.Keys
	err     error
}

// share keeps the keys from being rotated and destroyed before the transaction
// ends.
func (r ring) share(q *dbsqlc.Queries) statement {
	return exec(q.ShareSubjectKeys, dbsqlc.ShareSubjectKeysParams{Tenant: r.owner.Tenant, Subject: r.owner.Subject})
}

// verify fails with FL003 unless the keys, once shared, are still the subject's.
func (r ring) verify(q *dbsqlc.Queries) statement {
	return exec(q.VerifyKeys, dbsqlc.VerifyKeysParams{Tenant: r.owner.Tenant, Subject: r.owner.Subject, Version: r.version})
}

// seal encrypts content for a column of the row that key names.
func (r ring) seal(c column, content []byte, key ...string) ([]byte, error) {
	if r.err != nil {
		return nil, r.err
	}
	for _, part := range key {
		if strings.Contains(part, "\n") {
			return nil, fmt.Errorf("seal %s of %s: its key has a line feed", c.name, c.table)
		}
	}
	sealed, err := r.keys.Seal(content, r.place(c, key))
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w", c.name, c.table, err)
	}
	return sealed, nil
}

// open returns the content of a column of the row that key names; NULL is empty.
func (r ring) open(c column, sealed []byte, key ...string) ([]byte, error) {
	switch {
	case len(sealed) == 0:
		return nil, nil
	case sealed[0] == unsealedMark:
		return nil, ErrUnsealed
	case r.err != nil:
		return nil, r.err
	}
	content, err := r.keys.Open(sealed, r.place(c, key))
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w", c.name, c.table, err)
	}
	return content, nil
}

// openText is open for text.
func (r ring) openText(c column, sealed []byte, key ...string) (string, error) {
	content, err := r.open(c, sealed, key...)
	// Nobody else has the bytes; a copy would be a tenth of a long read.
	return unsafe.String(unsafe.SliceData(content), len(content)), err
}

// hash returns the keyed hash of text in hex.
func (r ring) hash(text string) (string, error) {
	sum, err := r.keys.Hash([]byte(text))
	return hex.EncodeToString(sum), err
}

func (r ring) place(c column, key []string) []byte {
	parts := make([]string, 0, 8)
	parts = append(parts, c.table, r.owner.Tenant)
	parts = append(parts, key...)
	return vault.Bind(append(parts, c.name)...)
}

// sealedSize is the size of the content of a sealed value.
func sealedSize(bytes int64) int64 { return max(0, bytes-vault.Overhead) }

// touch says that the transaction seals or opens content, and reports whether it
// can.
func (tx *Tx) touch() bool {
	tx.content = true
	if tx.err == nil {
		tx.err = tx.ring.err
	}
	return tx.err == nil
}

// owns reports whether a conversation is the scope's. Content that is sealed
// under the keys of another subject would be lost; a conversation without User
// is taken for the scope's.
func (tx *Tx) owns(conv Conversation) bool {
	if tx.err == nil && conv.User != "" && conv.User != tx.scope.User {
		tx.err = &Error{Kind: ErrNotFound}
	}
	return tx.err == nil
}

// seal is nil for empty content, and after an error, which is the transaction's.
func (tx *Tx) seal(c column, content []byte, key ...string) []byte {
	if len(content) == 0 {
		return nil
	}
	return tx.sealAny(c, content, key...)
}

// sealText is seal for text.
func (tx *Tx) sealText(c column, text string, key ...string) []byte {
	if text == "" {
		return nil
	}
	return tx.sealAnyText(c, text, key...)
}

// sealAny is seal for a column that is never NULL.
func (tx *Tx) sealAny(c column, content []byte, key ...string) []byte {
	if !tx.touch() {
		return nil
	}
	sealed, err := tx.ring.seal(c, content, key...)
	if err != nil {
		tx.err = err
	}
	return sealed
}

// sealAnyText is sealAny for text.
func (tx *Tx) sealAnyText(c column, text string, key ...string) []byte {
	if !utf8.ValidString(text) || strings.Contains(text, "\x00") {
		if tx.err == nil {
			tx.err = &Error{Code: codeNotText}
		}
		return nil
	}
	return tx.sealAny(c, []byte(text), key...)
}
