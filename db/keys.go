package db

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db/internal/dbsqlc"
	"github.com/fairlead/fairlead/internal/vault"
)

var (
	// ErrNoVault: this program has no key-encryption key, so it can neither read
	// nor write content.
	ErrNoVault = errors.New("content is encrypted and this program has no key-encryption key: set FAIRLEAD_ENCRYPTION_KEY")
	// ErrKeysDestroyed: the subject's keys were destroyed, and with them all of
	// its content.
	ErrKeysDestroyed = errors.New("the subject's keys were destroyed: its content cannot be read any more")
	// ErrUnsettledWrites: nobody knows of a write of the subject whether it
	// happened, and without the keys nobody could find out. It is an ErrConflict.
	ErrUnsettledWrites = fmt.Errorf("a write of the subject has no known outcome: %w", ErrConflict)
)

const (
	// keysTTL is how long Keys answers from memory.
	keysTTL = 30 * time.Second
	// maxCachedKeys bounds the subjects whose keys are in memory.
	maxCachedKeys = 4096
)

// keyCache keeps unwrapped keys, so that a key-encryption key in a KMS is not
// asked for each message.
type keyCache struct {
	vault *vault.Vault
	kept  *lru.Cache[vault.Owner, keptKeys]
	// newest is how the newest key-encryption key begins what it wraps, nil if
	// that says nothing.
	newest func() []byte
}

type keptKeys struct {
	keys    *vault.Keys
	version int32
	loaded  time.Time
}

// storedKeys are a row of subject_key or deployment_key.
type storedKeys struct {
	version   int32
	wrapped   vault.Wrapped
	destroyed bool
}

func newKeyCache(v *vault.Vault) *keyCache {
	kept, err := lru.New[vault.Owner, keptKeys](maxCachedKeys)
	if err != nil {
		panic("db: " + err.Error()) // The size is not positive.
	}
	return &keyCache{vault: v, kept: kept, newest: sync.OnceValue(func() []byte {
		// Two values tell a key's prefix from random bytes.
		keys, first, err := v.Make(vault.Owner{})
		if err != nil {
			return nil
		}
		second, err := v.Wrap(vault.Owner{}, keys)
		if err != nil || !bytes.Equal(wrapPrefix(first.Data), wrapPrefix(second.Data)) {
			return nil
		}
		return wrapPrefix(first.Data)
	})}
}

// ring returns a ring of keys as they were read; nil means that there are none.
func (c *keyCache) ring(o vault.Owner, stored *storedKeys) ring {
	r := ring{owner: o}
	switch {
	case c.vault == nil:
		r.err = ErrNoVault
		return r
	case stored == nil:
		r.err = errNoKeys
		return r
	case stored.destroyed:
		c.kept.Remove(o)
		r.err = ErrKeysDestroyed
		return r
	}
	r.version = stored.version
	if kept, ok := c.kept.Get(o); ok && kept.version == stored.version {
		r.keys = kept.keys
	} else if r.keys, r.err = c.vault.Unwrap(o, stored.wrapped); r.err != nil {
		return r
	}
	c.kept.Add(o, keptKeys{r.keys, r.version, time.Now()})
	return r
}

// outdated reports whether keys were wrapped under an older key-encryption key
// than the newest, where that can be told.
func (c *keyCache) outdated(stored *storedKeys) bool {
	prefix := wrapPrefix(stored.wrapped.Data)
	return prefix != nil && c.newest() != nil && !bytes.Equal(prefix, c.newest())
}

// wrapPrefix is Tink's prefix of the ciphertext in a wrapped keyset, which names
// the key; nil if another system made the ciphertext.
func wrapPrefix(wrapped []byte) []byte {
	// The keyset is the protobuf message EncryptedKeyset, and the ciphertext its
	// field 2.
	if len(wrapped) < 1 || wrapped[0] != 2<<3|2 {
		return nil
	}
	size, n := binary.Uvarint(wrapped[1:])
	if n <= 0 || size < 5 || len(wrapped) < 1+n+5 || wrapped[1+n] != 1 {
		return nil
	}
	return wrapped[1+n : 1+n+5]
}

// ring returns the keys of a subject, from memory if they are there; a
// transaction verifies them. They are made if there are none yet. The error is
// one of the database.
func (db *DB) ring(ctx context.Context, o vault.Owner) (ring, error) {
	if db.keys.vault == nil {
		return ring{owner: o, err: ErrNoVault}, nil
	}
	if kept, ok := db.keys.kept.Get(o); ok {
		return ring{owner: o, version: kept.version, keys: kept.keys}, nil
	}
	return db.loadRing(ctx, o)
}

// loadRing is ring that always asks the database.
func (db *DB) loadRing(ctx context.Context, o vault.Owner) (ring, error) {
	var stored *storedKeys
	if err := db.sendFor(ctx, o, db.getKeys(o, &stored)); err != nil {
		return ring{}, fmt.Errorf("load keys: %w", err)
	}
	if stored == nil {
		_, wrapped, err := db.keys.vault.Make(o)
		if err != nil {
			return ring{owner: o, err: err}, nil
		}
		insert := exec(db.q.InsertSubjectKey, dbsqlc.InsertSubjectKeyParams{Tenant: o.Tenant, Subject: o.Subject, Data: wrapped.Data, Hash: wrapped.Hash})
		if o == (vault.Owner{}) {
			insert = exec(db.q.InsertDeploymentKey, dbsqlc.InsertDeploymentKeyParams(wrapped))
		}
		// Somebody else may have been faster.
		if err := db.sendFor(ctx, o, insert, db.getKeys(o, &stored)); err != nil {
			return ring{}, fmt.Errorf("make keys: %w", err)
		}
	}
	r := db.keys.ring(o, stored)
	if r.err == nil && db.keys.outdated(stored) {
		// If this fails they are wrapped anew the next time.
		if wrapped, err := db.keys.vault.Wrap(o, r.keys); err == nil {
			_ = db.sendFor(ctx, o, db.replaceKeys(o, stored.version, wrapped, false))
		}
	}
	return r, nil
}

// getKeys reads the keys of an owner; into stays nil if there are none.
func (db *DB) getKeys(o vault.Owner, into **storedKeys) statement {
	return func(ctx context.Context, conn dbsqlc.DBTX) error {
		if o == (vault.Owner{}) {
			var row *dbsqlc.DeploymentKey
			err := maybe(func(ctx context.Context, conn dbsqlc.DBTX, _ struct{}) (dbsqlc.DeploymentKey, error) {
				return db.q.GetDeploymentKey(ctx, conn)
			}, struct{}{}, &row)(ctx, conn)
			if row != nil {
				*into = &storedKeys{version: row.Version, wrapped: vault.Wrapped{Data: row.Data, Hash: row.Hash}}
			}
			return err
		}
		var row *dbsqlc.SubjectKey
		err := maybe(db.q.GetSubjectKey, dbsqlc.GetSubjectKeyParams{Tenant: o.Tenant, Subject: o.Subject}, &row)(ctx, conn)
		*into = toStoredKeys(row)
		return err
	}
}

// ringOf returns a ring of the keys of a run's subject.
func (db *DB) ringOf(r Run, keys *dbsqlc.SubjectKey) ring {
	return db.keys.ring(vault.Owner{Tenant: r.Scope.Tenant, Subject: r.Scope.User}, toStoredKeys(keys))
}

func toStoredKeys(row *dbsqlc.SubjectKey) *storedKeys {
	if row == nil {
		return nil
	}
	return &storedKeys{version: row.Version, wrapped: vault.Wrapped{Data: row.Data, Hash: row.Hash}, destroyed: row.DestroyedAt != nil}
}

// replaceKeys stores keys of a version under another wrapping, or rotated.
func (db *DB) replaceKeys(o vault.Owner, version int32, w vault.Wrapped, rotated bool) statement {
	switch deployment := o == (vault.Owner{}); {
	case deployment && rotated:
		return exec(db.q.RotateDeploymentKey, dbsqlc.RotateDeploymentKeyParams{Data: w.Data, Hash: w.Hash, Version: version})
	case deployment:
		return exec(db.q.RewrapDeploymentKey, dbsqlc.RewrapDeploymentKeyParams{Data: w.Data, Hash: w.Hash, Version: version})
	case rotated:
		return exec(db.q.RotateSubjectKey, dbsqlc.RotateSubjectKeyParams{Data: w.Data, Hash: w.Hash, Tenant: o.Tenant, Subject: o.Subject, Version: version})
	default:
		return exec(db.q.RewrapSubjectKey, dbsqlc.RewrapSubjectKeyParams{Data: w.Data, Hash: w.Hash, Tenant: o.Tenant, Subject: o.Subject, Version: version})
	}
}

// sendFor sends statements as one transaction in the owner's tenant.
func (db *DB) sendFor(ctx context.Context, o vault.Owner, statements ...statement) error {
	if o == (vault.Owner{}) {
		return db.batch(ctx, statements...)
	}
	return db.inTenant(ctx, agent.Scope{Tenant: o.Tenant}, statements...)
}

// LocalKey reads a key-encryption key as `starter encryption-key` prints it, for
// Options.
func LocalKey(text string) (tink.AEAD, error) { return vault.Local(text) }

// vaultOn is nil for no key.
func vaultOn(kek tink.AEAD) *vault.Vault {
	if kek == nil {
		return nil
	}
	return vault.New(kek)
}

// Keys returns the keys of a subject, made if there are none yet. It answers
// from memory for at most keysTTL, after which a destruction elsewhere is
// noticed. Transactions notice at once.
func (db *DB) Keys(ctx context.Context, owner vault.Owner) (*vault.Keys, error) {
	kept, err := db.keptKeys(owner)
	if kept != nil || err != nil {
		return kept, err
	}
	return db.FreshKeys(ctx, owner)
}

// FreshKeys is Keys that asks the database, for who meets a value that the keys
// in memory do not open: they may have been rotated.
func (db *DB) FreshKeys(ctx context.Context, owner vault.Owner) (*vault.Keys, error) {
	if (owner.Tenant == "") != (owner.Subject == "") {
		return nil, ErrScope
	}
	if db.keys.vault == nil {
		return nil, ErrNoVault
	}
	r, err := db.loadRing(ctx, owner)
	if err == nil {
		err = r.err
	}
	if err != nil {
		return nil, err
	}
	return r.keys, nil
}

// LookUpKeys is Keys that never makes keys, for who is told by a stranger whose
// they are: ErrNotFound, which is an ErrSealed as well, if there are none. They
// are never gone after that, so FreshKeys makes none either.
func (db *DB) LookUpKeys(ctx context.Context, owner vault.Owner) (*vault.Keys, error) {
	kept, err := db.keptKeys(owner)
	if kept != nil || err != nil {
		return kept, err
	}
	var stored *storedKeys
	if err := db.sendFor(ctx, owner, db.getKeys(owner, &stored)); err != nil {
		return nil, fmt.Errorf("look up keys: %w", err)
	}
	if stored == nil {
		return nil, fmt.Errorf("look up keys: %w: %w", ErrNotFound, errNoKeys)
	}
	r := db.keys.ring(owner, stored)
	return r.keys, r.err
}

// keptKeys answers from memory, nil if they have to be asked for.
func (db *DB) keptKeys(owner vault.Owner) (*vault.Keys, error) {
	if (owner.Tenant == "") != (owner.Subject == "") {
		return nil, ErrScope
	}
	if db.keys.vault == nil {
		return nil, ErrNoVault
	}
	if kept, ok := db.keys.kept.Get(owner); ok && time.Since(kept.loaded) < keysTTL {
		return kept.keys, nil
	}
	return nil, nil
}

// RotateKeys gives a subject a new key, under which everything is sealed from
// then on. What was sealed before still reads under its older key: messages are
// sealed anew as steps read them, and everything else stays as it is. Tenant and
// subject both empty are the deployment's own keys. ErrNotFound if there are no
// keys.
func (db *DB) RotateKeys(ctx context.Context, tenant, subject string) error {
	if (tenant == "") != (subject == "") {
		return ErrScope
	}
	if db.keys.vault == nil {
		return ErrNoVault
	}
	o := vault.Owner{Tenant: tenant, Subject: subject}
	for range maxTxTries {
		var before, after *storedKeys
		if err := db.sendFor(ctx, o, db.getKeys(o, &before)); err != nil {
			return fmt.Errorf("rotate keys: %w", err)
		}
		if before == nil {
			return fmt.Errorf("rotate keys: %w", ErrNotFound)
		}
		r := db.keys.ring(o, before)
		if r.err != nil {
			return fmt.Errorf("rotate keys: %w", r.err)
		}
		_, wrapped, err := db.keys.vault.Rotate(o, r.keys)
		if err != nil {
			return err
		}
		lock := exec(db.q.LockSubjectKeys, dbsqlc.LockSubjectKeysParams{Tenant: tenant, Subject: subject})
		if err := db.sendFor(ctx, o, lock, db.replaceKeys(o, before.version, wrapped, true), db.getKeys(o, &after)); err != nil {
			return fmt.Errorf("rotate keys: %w", err)
		}
		if after != nil && bytes.Equal(after.wrapped.Data, wrapped.Data) {
			db.keys.ring(o, after)
			return nil
		}
		// Somebody else rotated or destroyed them in between.
	}
	return fmt.Errorf("rotate keys: %w", ErrConflict)
}

// DestroyKeys destroys a subject's keys for good: no copy of its content, in
// backups and histories as well, can be read any more. by says who did it. While
// a run of the subject is open it returns ErrConflict, and ErrUnsettledWrites
// while a write of an ended one has no known outcome. ErrNotFound if there are no
// keys; done again it changes nothing.
func (db *DB) DestroyKeys(ctx context.Context, tenant, subject, by string) error {
	if tenant == "" || subject == "" {
		return ErrScope
	}
	if by == "" {
		return errors.New("destroy keys: nobody is named who does it")
	}
	var (
		o       = vault.Owner{Tenant: tenant, Subject: subject}
		hinders dbsqlc.HindersDestructionRow
		after   *storedKeys
	)
	// The lock waits for the transactions that use the keys, and with them for
	// the runs that they open and the writes that they begin.
	err := db.sendFor(ctx, o,
		exec(db.q.LockSubjectKeys, dbsqlc.LockSubjectKeysParams{Tenant: tenant, Subject: subject}),
		one(db.q.HindersDestruction, dbsqlc.HindersDestructionParams{Tenant: tenant, Subject: subject}, &hinders),
		exec(db.q.DestroySubjectKey, dbsqlc.DestroySubjectKeyParams{Tenant: tenant, Subject: subject, DestroyedBy: by}),
		db.getKeys(o, &after))
	switch {
	case err != nil:
		return fmt.Errorf("destroy keys: %w", err)
	case after == nil:
		return fmt.Errorf("destroy keys: %w", ErrNotFound)
	case after.destroyed:
		db.keys.kept.Remove(o)
		return nil
	case hinders.UnsettledWrite && !hinders.OpenRun:
		return fmt.Errorf("destroy keys: %w", ErrUnsettledWrites)
	default:
		return fmt.Errorf("destroy keys: a run of the subject is open: %w", ErrConflict)
	}
}
