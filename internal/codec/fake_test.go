package codec_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/vault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	ann        = vault.Owner{Tenant: "acme", Subject: "ann"}
	deployment = vault.Owner{}
)

// store is a Source as package db is one: it keeps wrapped keys for all, and
// each program (a fakeSource) the unwrapped ones.
type store struct {
	vault *vault.Vault
	mu    sync.Mutex
	rows  map[vault.Owner]vault.Wrapped
	// destroyed owners have a row without keys.
	destroyed map[vault.Owner]bool
}

func newStore(t testing.TB) *store {
	t.Helper()
	text, err := vault.GenerateLocal()
	if err != nil {
		t.Fatal(err)
	}
	kek, err := vault.Local(text)
	if err != nil {
		t.Fatal(err)
	}
	return &store{vault: vault.New(kek), rows: map[vault.Owner]vault.Wrapped{}, destroyed: map[vault.Owner]bool{}}
}

func (s *store) destroy(owner vault.Owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.rows, owner)
	s.destroyed[owner] = true
}

func (s *store) rotate(t testing.TB, owner vault.Owner) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	keys, err := s.vault.Unwrap(owner, s.rows[owner])
	if err != nil {
		t.Fatal(err)
	}
	if _, s.rows[owner], err = s.vault.Rotate(owner, keys); err != nil {
		t.Fatal(err)
	}
}

// owners are those who have keys.
func (s *store) owners() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.rows)
}

// program returns a Source with a cache of its own.
func (s *store) program() *fakeSource {
	return &fakeSource{store: s, cached: map[vault.Owner]*vault.Keys{}}
}

type fakeSource struct {
	*store
	cached map[vault.Owner]*vault.Keys
	// errs are what the next requests fail with, always what every one does.
	errs   []error
	always error
	asked  int
}

// fail makes every request fail with err, or none if it is nil.
func (f *fakeSource) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.always, f.asked = err, 0
	clear(f.cached)
}

// requests counts those since fail.
func (f *fakeSource) requests() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

func (f *fakeSource) Keys(_ context.Context, owner vault.Owner) (*vault.Keys, error) {
	return f.keys(owner, true)
}

func (f *fakeSource) LookUpKeys(_ context.Context, owner vault.Owner) (*vault.Keys, error) {
	return f.keys(owner, false)
}

func (f *fakeSource) keys(owner vault.Owner, create bool) (*vault.Keys, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	switch {
	case f.always != nil:
		return nil, f.always
	case len(f.errs) > 0:
		err := f.errs[0]
		f.errs = f.errs[1:]
		return nil, err
	case f.destroyed[owner]:
		return nil, db.ErrKeysDestroyed
	case f.cached[owner] != nil:
		return f.cached[owner], nil
	}
	var keys *vault.Keys
	row, ok := f.rows[owner]
	var err error
	switch {
	case ok:
		keys, err = f.vault.Unwrap(owner, row)
	case create:
		keys, row, err = f.vault.Make(owner)
	default:
		err = fmt.Errorf("look up keys: %w", &db.Error{Kind: db.ErrNotFound})
	}
	if err != nil {
		return nil, err
	}
	f.rows[owner], f.cached[owner] = row, keys
	return keys, nil
}

func (f *fakeSource) FreshKeys(ctx context.Context, owner vault.Owner) (*vault.Keys, error) {
	f.mu.Lock()
	delete(f.cached, owner)
	f.mu.Unlock()
	return f.Keys(ctx, owner)
}

func payload(t testing.TB, c converter.DataConverter, value any) *common.Payload {
	t.Helper()
	p, err := c.ToPayload(value)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func metadata(p *common.Payload, key string) string { return string(p.GetMetadata()[key]) }
