package tooltest

import (
	"bytes"
	"errors"
	"testing"

	"github.com/fairlead/fairlead/tool"
)

// CheckWrite fails t unless the tool keeps the contract of tool.Writer, and of
// tool.Finder if it is one. It performs the sample up to twice, against a fake
// of whatever the tool talks to; effects returns how many effects the fake has
// seen in all.
//
// It checks that preparing has no effect, that committing the plan has one and
// gives a valid result, and that an error that promises that nothing happened is
// true: a second write with the version that was confirmed for the first. Of a
// Finder it checks that committing again with the same key has no second effect
// and gives the same result, though the resource has changed, and that the key
// is found afterwards with that result and another key is not.
//
// Check is to be called as well.
func CheckWrite(t testing.TB, subject tool.Tool, sample tool.Invocation, effects func() int) {
	t.Helper()
	s := begin(t, subject, sample)
	if _, ok := subject.(tool.Writer); !ok {
		t.Fatal("the tool is no tool.Writer")
	}
	before := effects()
	plan, err := s.registry.Prepare(t.Context(), s.call)
	if err != nil {
		t.Fatalf("the sample cannot be prepared: %v (cause: %v)", err, tool.Cause(err))
	}
	if got := effects() - before; got != 0 {
		t.Errorf("preparing has %d effects, want none", got)
	}
	s.call.Version = plan.Version
	before = effects()
	result, err := s.registry.Commit(t.Context(), s.withKey("first"))
	if err != nil {
		t.Fatalf("the sample cannot be committed: %v (cause: %v)", err, tool.Cause(err))
	}
	if got := effects() - before; got != 1 {
		t.Errorf("committing has %d effects, want 1", got)
	}
	checkResult(t, result)
	if _, ok := subject.(tool.Finder); ok {
		checkIdempotent(t, s, result, effects)
		checkFind(t, s, result, effects)
	}
	checkPromise(t, s, effects)
}

// withKey returns the call with an idempotency key of its own.
func (s suite) withKey(name string) tool.Call {
	call := s.call
	call.Key = tool.Hash([]byte(name))
	return call
}

func checkIdempotent(t testing.TB, s suite, first tool.Result, effects func() int) {
	t.Helper()
	before := effects()
	again, err := s.registry.Commit(t.Context(), s.withKey("first"))
	if got := effects() - before; got != 0 {
		t.Errorf("committing again with the same key has %d effects, want none", got)
	}
	if err != nil {
		t.Errorf("committing again with the same key fails, although it was performed: %v (cause: %v)", err, tool.Cause(err))
		return
	}
	if !same(again, first) {
		t.Error("committing again with the same key gives another result")
	}
}

func checkFind(t testing.TB, s suite, first tool.Result, effects func() int) {
	t.Helper()
	before := effects()
	found, err := s.registry.Find(t.Context(), s.withKey("first"))
	switch {
	case err != nil:
		t.Errorf("the look-up fails: %v (cause: %v)", err, tool.Cause(err))
	case found.State != tool.FindPerformed:
		t.Errorf("a write that was performed is found %s, want %s", found.State, tool.FindPerformed)
	case !same(found.Result, first):
		t.Error("the look-up gives another result than the commit")
	}
	other, err := s.registry.Find(t.Context(), s.withKey("never sent"))
	if err != nil {
		t.Errorf("the look-up of a key that was never sent fails: %v (cause: %v)", err, tool.Cause(err))
	} else if other.State != tool.FindAbsent && other.State != tool.FindUnknown {
		t.Errorf("a key that was never sent is found %s, want %s or %s", other.State, tool.FindAbsent, tool.FindUnknown)
	}
	if got := effects() - before; got != 0 {
		t.Errorf("looking up has %d effects, want none", got)
	}
}

// checkPromise commits another write with the version of the first. Whether that
// is refused depends on the system; what is said about it must be true.
func checkPromise(t testing.TB, s suite, effects func() int) {
	t.Helper()
	before := effects()
	_, err := s.registry.Commit(t.Context(), s.withKey("second"))
	got := effects() - before
	switch {
	case err == nil && got != 1:
		t.Errorf("committing a second write has %d effects, want 1", got)
	case err != nil && !errors.Is(err, tool.ErrOutcomeUnknown) && got != 0:
		t.Errorf("a commit that says that nothing happened has %d effects: %v", got, err)
	}
}

func same(a, b tool.Result) bool {
	return bytes.Equal(a.Content, b.Content) && a.ContentType == b.ContentType
}
