package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/approval"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeStarter stands for the starter: a run waits for decisions about plans in
// turn. It notes who was called with what.
const fakeStarter = `#!/bin/sh
cd "$(dirname "$0")"
key=without-key
[ -n "$FAIRLEAD_APPROVAL_KEY" ] && key=with-key
case "$*" in pending*--json) ;; *) echo "$1 $key $*" >> calls ;; esac
case "$1" in
run)
	trap 'exit 130' INT
	until [ -e end ]; do
		if [ -e queue ]; then mv queue waiting; fi
		sleep 0.02
	done
	exit "$(cat end)" ;;
pending)
	case "$*" in
	*--json)
		[ -e known ] || { touch known; exit 2; }
		if [ -e waiting ]; then echo "{\"plans\":[$(cat waiting)]}"; else echo '{"plans":[]}'; fi ;;
	*) echo "the plan" ;;
	esac ;;
approve | decline)
	[ -e fail ] && exit 1
	rm waiting
	if [ -e late ]; then mv late queue; exit 1; fi
	echo '{"standing":"accepted","write_result":"performed"}'
	if [ -e next ]; then mv next queue; else echo 0 > end; fi ;;
esac
`

const (
	first  = `{"run_id":"r","call_id":"3.0","revision":1,"plan_hash":"aaa","summary":"x"}`
	second = `{"run_id":"r","call_id":"3.0","revision":2,"plan_hash":"bbb","summary":"x"}`
)

// play asks the question on a stage with the fake and returns what was called.
func play(t *testing.T, files map[string]string, a *approver) (code int, calls []string, err error) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "starter"), []byte(fakeStarter), 0o700))
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	s := stage{bin: dir, dir: dir, privateKey: "secret", publicKey: "public"}
	a.stage, a.runID = s, "r"
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	code, err = s.ask(ctx, a, "r", "why?")
	text, readErr := os.ReadFile(filepath.Join(dir, "calls"))
	require.NoError(t, readErr)
	for line := range strings.Lines(string(text)) {
		calls = append(calls, strings.TrimSpace(line))
	}
	return code, calls, err
}

const (
	ranAsAnn      = "run without-key run --agent opspilot --tenant demo --user ann --environment production --conversation r --run-id r --message why?"
	shownToBob    = "pending without-key pending r --tenant demo --user bob"
	approvedByBob = "approve with-key approve r --tenant demo --user bob --call 3.0 --plan aaa --yes --json"
	declinedByBob = "decline with-key decline r --tenant demo --user bob --call 3.0 --plan aaa --yes --json"
	approvedAgain = "approve with-key approve r --tenant demo --user bob --call 3.0 --plan bbb --yes --json"
	canceledByAnn = "cancel without-key cancel r --tenant demo --user ann"
)

func TestTheDemoDecides(t *testing.T) {
	for name, c := range map[string]struct {
		files    map[string]string
		person   string // "-": nobody
		calls    []string
		approved bool
	}{
		"nobody there":           {map[string]string{"queue": first}, "-", []string{ranAsAnn, shownToBob, approvedByBob}, true},
		"prepared anew":          {map[string]string{"queue": first, "next": second}, "-", []string{ranAsAnn, shownToBob, approvedByBob, shownToBob, approvedAgain}, true},
		"the plan had changed":   {map[string]string{"queue": first, "late": second}, "-", []string{ranAsAnn, shownToBob, approvedByBob, shownToBob, approvedAgain}, true},
		"a person says yes":      {map[string]string{"queue": first}, "Y\n", []string{ranAsAnn, shownToBob, approvedByBob}, true},
		"a person says no":       {map[string]string{"queue": first}, "\n", []string{ranAsAnn, shownToBob, declinedByBob}, false},
		"a person says nothing":  {map[string]string{"queue": first}, "", []string{ranAsAnn, shownToBob, declinedByBob}, false},
		"a person changes sides": {map[string]string{"queue": first, "next": second}, "no\nyes\n", []string{ranAsAnn, shownToBob, declinedByBob, shownToBob, approvedAgain}, true},
		"nothing to decide":      {map[string]string{"end": "0"}, "-", []string{ranAsAnn}, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := &approver{}
			if c.person != "-" {
				a.person = strings.NewReader(c.person)
			}
			code, calls, err := play(t, c.files, a)
			require.NoError(t, err)
			require.Zero(t, code)
			require.Equal(t, c.calls, calls)
			require.Equal(t, c.approved, a.approved)
		})
	}
}

func TestARunThatFailsIsAFailure(t *testing.T) {
	code, calls, err := play(t, map[string]string{"end": "1", "worker.log": "the log"}, &approver{})
	require.Equal(t, 1, code)
	require.ErrorContains(t, err, "the log")
	require.Equal(t, []string{ranAsAnn}, calls)
}

// A decision that cannot be taken ends the demo, and nothing waits until
// tomorrow.
func TestARefusedDecisionCancelsTheRun(t *testing.T) {
	code, calls, err := play(t, map[string]string{"queue": first, "fail": ""}, &approver{})
	require.NotZero(t, code)
	require.ErrorContains(t, err, "starter approve: exit status 1")
	require.Equal(t, []string{ranAsAnn, shownToBob, approvedByBob, canceledByAnn}, calls)
}

func TestKeys(t *testing.T) {
	private, public, err := newKeyPair()
	require.NoError(t, err)
	key, err := approval.ParseKey(private)
	require.NoError(t, err)
	require.Equal(t, key.Public(), public)

	t.Setenv("FAIRLEAD_APPROVAL_KEY", "of somebody else")
	require.NotContains(t, strings.Join(stage{}.environment(), "\n"), "FAIRLEAD_APPROVAL")
}

func TestPoliciesAreWritten(t *testing.T) {
	s := stage{dir: t.TempDir()}
	require.NoError(t, s.writePolicies())
	require.Contains(t, s.environment(), "FAIRLEAD_POLICIES="+s.policies())
	for _, name := range []string{"opspilot.cedar", "entities.json"} {
		info, err := os.Stat(filepath.Join(s.policies(), name))
		require.NoError(t, err)
		require.Positive(t, info.Size())
	}
}

func TestDevNullIsNoTerminal(t *testing.T) {
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	require.False(t, isTerminal(null))
}
