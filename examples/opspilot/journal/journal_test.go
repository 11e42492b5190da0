package journal_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/examples/opspilot/journal"
)

type entry struct {
	Name string `json:"name"`
}

func open(t *testing.T, path string) (*journal.File, []string) {
	t.Helper()
	var lines []string
	f, err := journal.Open(path, func(line []byte) error {
		lines = append(lines, strings.TrimSuffix(string(line), "\n"))
		return nil
	})
	require.NoError(t, err)
	return f, lines
}

func TestJournalIsReadAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "new", "journal.jsonl")
	f, lines := open(t, path)
	require.Empty(t, lines)
	require.NoError(t, f.Append(entry{"one"}))
	require.NoError(t, f.Append(entry{"two\nlines"}))
	require.NoError(t, f.Close())

	f, lines = open(t, path)
	require.Equal(t, []string{`{"name":"one"}`, `{"name":"two\nlines"}`}, lines)
	require.NoError(t, f.Close())
}

// A process that was killed while it wrote leaves half a line.
func TestJournalRemovesAnInterruptedLine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(`{"name":"one"}`+"\n"+`{"name":"tw`), 0o600))
	f, lines := open(t, path)
	require.Equal(t, []string{`{"name":"one"}`}, lines)
	require.NoError(t, f.Append(entry{"three"}))
	require.NoError(t, f.Close())
	f, lines = open(t, path)
	require.Equal(t, []string{`{"name":"one"}`, `{"name":"three"}`}, lines)
	require.NoError(t, f.Close())
}

func TestJournalHasOneWriter(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.jsonl")
	f, _ := open(t, path)
	_, err := journal.Open(path, func([]byte) error { return nil })
	require.ErrorContains(t, err, "another process holds")
	require.NoError(t, f.Close())
	f, _ = open(t, path)
	require.NoError(t, f.Close())
}

func TestJournalNamesTheLineThatCannotBeRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.jsonl")
	require.NoError(t, os.WriteFile(path, []byte("{}\nno\n"), 0o600))
	wrong := errors.New("wrong")
	_, err := journal.Open(path, func(line []byte) error {
		if string(line) == "no\n" {
			return wrong
		}
		return nil
	})
	require.ErrorIs(t, err, wrong)
	require.ErrorContains(t, err, "journal.jsonl:2")
}
