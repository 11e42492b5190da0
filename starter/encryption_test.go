package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/vault"
)

func TestEncryptionKey(t *testing.T) {
	t.Parallel()
	// A broken key in the settings does not keep anybody from making a good one.
	o := console{env: map[string]string{"FAIRLEAD_ENCRYPTION_KEY": "broken"}}.invoke(t.Context(), "encryption-key")
	text, ok := strings.CutPrefix(strings.TrimSuffix(o.out, "\n"), "FAIRLEAD_ENCRYPTION_KEY=")
	if _, err := vault.Local(text); o.code != exitOK || !ok || err != nil {
		t.Fatalf("%+v, %v", o, err)
	}
	if strings.Contains(o.errOut, text) || !strings.Contains(o.errOut, "Keep it") {
		t.Errorf("stderr %q", o.errOut)
	}
	again := console{}.invoke(t.Context(), "encryption-key", "--json")
	var document map[string]string
	if err := json.Unmarshal([]byte(again.out), &document); err != nil || document["FAIRLEAD_ENCRYPTION_KEY"] == text || document["FAIRLEAD_ENCRYPTION_KEY"] == "" {
		t.Errorf("%+v, %v", again, err)
	}
}

// The key is changed in two roll-outs; in each of them programs with the setting
// before and after it read what the others write.
func TestChangeEncryptionKey(t *testing.T) {
	t.Parallel()
	change := func(present, flag, says string) string {
		t.Helper()
		o := console{env: map[string]string{"FAIRLEAD_ENCRYPTION_KEY": present}}.invoke(t.Context(), "encryption-key", flag)
		text := strings.TrimPrefix(strings.TrimSuffix(o.out, "\n"), "FAIRLEAD_ENCRYPTION_KEY=")
		if o.code != exitOK || text == present || !strings.Contains(o.errOut, says) || strings.Contains(o.errOut, text) {
			t.Fatalf("%s: %+v", flag, o)
		}
		// What is said goes with the JSON as well.
		o = console{env: map[string]string{"FAIRLEAD_ENCRYPTION_KEY": present}}.invoke(t.Context(), "encryption-key", flag, "--json")
		if o.code != exitOK || !json.Valid([]byte(o.out)) || !strings.Contains(o.errOut, says) {
			t.Errorf("%s: %+v", flag, o)
		}
		return text
	}
	rotated := change(encryptionKey, "--rotate", "to all programs first. When the last one has it: starter encryption-key --promote")
	promoted := change(rotated, "--promote", "Give it to all programs.")
	ann := vault.Owner{Tenant: "acme", Subject: "ann"}
	open := func(text string) *vault.Vault {
		kek, err := vault.Local(text)
		if err != nil {
			t.Fatal(err)
		}
		return vault.New(kek)
	}
	reads := func(reader, writer string) bool {
		_, wrapped, err := open(writer).Make(ann)
		if err != nil {
			t.Fatal(err)
		}
		_, err = open(reader).Unwrap(ann, wrapped)
		return err == nil
	}
	if !reads(encryptionKey, rotated) || !reads(rotated, encryptionKey) {
		t.Error("in the first roll-out programs do not read one another's keys")
	}
	if !reads(rotated, promoted) || !reads(promoted, rotated) || !reads(promoted, encryptionKey) {
		t.Error("in the second roll-out programs do not read one another's keys")
	}
	if reads(encryptionKey, promoted) {
		t.Error("the new key is not used")
	}
	for present, says := range map[string]string{"": "FAIRLEAD_ENCRYPTION_KEY is not set", "hunter2canary": "FAIRLEAD_ENCRYPTION_KEY: "} {
		for _, flag := range []string{"--rotate", "--promote"} {
			o := console{env: map[string]string{"FAIRLEAD_ENCRYPTION_KEY": present}}.invoke(t.Context(), "encryption-key", flag)
			if o.code != exitUsage || !strings.Contains(o.errOut, says) || strings.Contains(o.errOut, "hunter2") || o.out != "" {
				t.Errorf("%q %s: %+v", present, flag, o)
			}
		}
	}
	for name, test := range map[string]struct {
		present string
		args    []string
		says    string
	}{
		"both":               {rotated, []string{"--rotate", "--promote"}, "either --rotate or --promote"},
		"twice":              {rotated, []string{"--rotate"}, "--promote"},
		"nothing to promote": {promoted, []string{"--promote"}, "--rotate"},
	} {
		o := console{env: map[string]string{"FAIRLEAD_ENCRYPTION_KEY": test.present}}.invoke(t.Context(), append([]string{"encryption-key"}, test.args...)...)
		if o.code != exitUsage || !strings.Contains(o.errOut, test.says) || o.out != "" || strings.Contains(o.errOut, test.present) {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// What shows or sends content needs the key, everything else does not.
func TestWhatNeedsTheKey(t *testing.T) {
	t.Parallel()
	none := map[string]string{"FAIRLEAD_ENCRYPTION_KEY": "", "FAIRLEAD_APPROVAL_KEY": ""}
	for name, args := range map[string][]string{
		"run":          {"run", "--agent", "opspilot", "--message", "Why?"},
		"pending":      {"pending", "--user", "bob"},
		"unsettled":    {"unsettled", "--user", "olga"},
		"settle":       {"settle", "run-1", "--call", "1.0", "--performed", "--user", "olga"},
		"show":         {"show", "run-1", "--content"},
		"keys rotate":  {"keys", "rotate", "--user", "ann"},
		"codec-server": {"codec-server"},
	} {
		c := console{reader: &fakeReader{reports: []db.RunReport{report()}}, engine: &fakeEngine{}, office: &fakeOffice{}, records: &fakeRecords{}, env: none}
		o := c.invoke(t.Context(), args...)
		if o.code != exitUsage || !strings.Contains(o.errOut, "starter encryption-key") || o.out != "" || len(c.engine.started)+len(c.records.asked) > 0 {
			t.Errorf("%s: %+v", name, o)
		}
	}
	for name, args := range map[string][]string{
		"list":         {"list"},
		"show":         {"show", "run-1"},
		"cancel":       {"cancel", "run-1", "--no-wait"},
		"follow":       {"follow", "run-1"},
		"snapshot":     {"snapshot", "c-1", "--user", "olga"},
		"snapshots":    {"snapshots", "c-1"},
		"rollback":     {"rollback", "c-1", "s1", "--user", "olga", "--yes"},
		"keys destroy": {"keys", "destroy", "--user", "ann", "--by", "olga", "--yes"},
	} {
		c := console{reader: &fakeReader{reports: []db.RunReport{report()}, sealed: true}, engine: &fakeEngine{}, records: &fakeRecords{}, env: none}
		o := follow(t, c, args...)
		if o.code != exitOK || strings.Contains(o.out, "The pool leaks") {
			t.Errorf("%s: %+v", name, o)
		}
		if name == "follow" && !strings.Contains(o.errOut, "FAIRLEAD_ENCRYPTION_KEY") {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	destroy := []string{"keys", "destroy", "--tenant", "acme", "--user", "ann", "--by", "olga"}
	for name, test := range map[string]struct {
		console console
		args    []string
		asked   string
		code    int
		out     string
		errOut  string
	}{
		"rotate":         {console{}, []string{"keys", "rotate", "--tenant", "acme", "--user", "ann"}, "rotate acme/ann", exitOK, "User ann of tenant acme has a new key.\n", ""},
		"the deployment": {console{}, []string{"keys", "rotate", "--deployment"}, "rotate /", exitOK, "The deployment has a new key.\n", ""},
		"both":           {console{}, []string{"keys", "rotate", "--deployment", "--user", "ann"}, "", exitUsage, "", "either --user or --deployment"},
		"both, tenant":   {console{}, []string{"keys", "rotate", "--deployment", "--tenant", "acme"}, "", exitUsage, "", "either --user or --deployment"},
		"destroy, yes":   {console{}, append(destroy, "--yes"), "destroy acme/ann by olga", exitOK, "are destroyed", ""},
		"destroy, typed": {console{terminal: true, stdin: "Ann\n"}, destroy, "destroy acme/ann by olga", exitOK, "are destroyed", "messages and answers, tool arguments and results"},
		"backups":        {console{terminal: true, stdin: "Ann\n"}, destroy, "destroy acme/ann by olga", exitOK, "", "A backup that holds the table subject_key holds these keys: what it has stays readable until it is\ngone, and after a restore from it the keys have to be destroyed again.\n"},
		"destroy, no":    {console{terminal: true, stdin: "yes\n"}, destroy, "", exitRunFailed, "", "nothing was destroyed"},
		"destroy, eof":   {console{terminal: true}, destroy, "", exitRunFailed, "", "nothing was destroyed"},
		"nobody to ask":  {console{stdin: "ann\n"}, destroy, "", exitUsage, "", "--yes"},
		"JSON asks none": {console{terminal: true, stdin: "ann\n"}, append(destroy, "--json"), "", exitUsage, "", "--yes"},
		"no operator":    {console{}, append(destroy, "--by", "", "--yes"), "", exitUsage, "", "--by is missing"},
		"odd operator":   {console{}, append(destroy, "--by", "o lga", "--yes"), "", exitUsage, "", "--by must be"},
		"no user":        {console{}, []string{"keys", "rotate"}, "", exitUsage, "", "--user is missing"},
		"odd user":       {console{}, []string{"keys", "rotate", "--user", "a b"}, "", exitUsage, "", "--user must be"},
		"no database":    {console{env: map[string]string{"DATABASE_URL": ""}}, append(destroy, "--yes"), "", exitUsage, "", "FAIRLEAD_DATABASE_URL"},
		"no such action": {console{}, []string{"keys", "burn"}, "", exitUsage, "", "no command"},
	} {
		test.console.records = &fakeRecords{}
		o := test.console.invoke(t.Context(), test.args...)
		if o.code != test.code || !strings.Contains(o.out, test.out) || !strings.Contains(o.errOut, test.errOut) || strings.Join(test.console.records.asked, ";") != test.asked {
			t.Errorf("%s: %+v, asked %q", name, o, test.console.records.asked)
		}
	}
	for name, test := range map[string]struct {
		err  error
		args []string
		code int
		says string
	}{
		"none":         {db.ErrNotFound, append(destroy, "--yes"), exitUsage, "user ann of tenant acme has no keys"},
		"a run is on":  {db.ErrConflict, append(destroy, "--yes"), exitRunFailed, "a run of user ann is going on: nothing was destroyed"},
		"a write":      {fmt.Errorf("destroy keys: %w", db.ErrUnsettledWrites), append(destroy, "--yes"), exitRunFailed, "nothing was destroyed; settle it first (starter unsettled --tenant acme --user olga, then starter settle)"},
		"down":         {db.ErrUnavailable, append(destroy, "--yes"), exitUnreachable, "PostgreSQL cannot be reached"},
		"none, rotate": {db.ErrNotFound, []string{"keys", "rotate", "--user", "ann"}, exitUsage, "has no keys"},
		"gone, rotate": {db.ErrKeysDestroyed, []string{"keys", "rotate", "--user", "ann"}, exitUsage, "were destroyed"},
		"other":        {errBroken, append(destroy, "--yes"), exitRunFailed, "broken"},
	} {
		o := console{records: &fakeRecords{err: test.err}}.invoke(t.Context(), test.args...)
		if o.code != test.code || !strings.Contains(o.errOut, test.says) || o.out != "" {
			t.Errorf("%s: %+v", name, o)
		}
	}
	o := console{records: &fakeRecords{}}.invoke(t.Context(), append(destroy, "--yes", "--json")...)
	if strings.Join(strings.Fields(o.out), "") != `{"tenant":"acme","user":"ann","destroyed":true,"destroyed_by":"olga"}` {
		t.Errorf("%+v", o)
	}
}

func TestKeysInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	silent := make(chan struct{})
	defer close(silent)
	c := console{records: &fakeRecords{}, terminal: true, silent: silent}
	o := c.invoke(ctx, "keys", "destroy", "--user", "ann", "--by", "olga")
	if o.code != exitInterrupted || !strings.Contains(o.errOut, "Nothing was destroyed") || len(c.records.asked) > 0 {
		t.Errorf("%+v", o)
	}
}

// keyring is a keySource in memory.
type keyring struct {
	vault *vault.Vault
	keys  map[vault.Owner]*vault.Keys
}

func (k keyring) Keys(_ context.Context, owner vault.Owner) (*vault.Keys, error) {
	if k.keys[owner] == nil {
		keys, _, err := k.vault.Make(owner)
		if err != nil {
			return nil, err
		}
		k.keys[owner] = keys
	}
	return k.keys[owner], nil
}

func (k keyring) LookUpKeys(_ context.Context, owner vault.Owner) (*vault.Keys, error) {
	if k.keys[owner] == nil {
		return nil, db.ErrNotFound
	}
	return k.keys[owner], nil
}

func (k keyring) FreshKeys(ctx context.Context, owner vault.Owner) (*vault.Keys, error) {
	return k.Keys(ctx, owner)
}

func (keyring) Close() {}

func newKeyring(t *testing.T) keyring {
	t.Helper()
	kek, err := vault.Local(encryptionKey)
	if err != nil {
		t.Fatal(err)
	}
	return keyring{vault.New(kek), map[vault.Owner]*vault.Keys{}}
}

func TestCodecServer(t *testing.T) {
	t.Parallel()
	probe, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := probe.Addr().String()
	token := strings.Repeat("olga", 10)
	env := map[string]string{"FAIRLEAD_CODEC_TOKENS": "olga:" + token, "FAIRLEAD_LOG_FORMAT": "json"}
	keys := newKeyring(t)

	taken := console{keys: keys, env: env}.invoke(t.Context(), "codec-server", "--listen", address)
	if taken.code != exitUsage || !strings.Contains(taken.errOut, "--listen") || !strings.Contains(taken.errOut, address) {
		t.Errorf("a taken port: %+v", taken)
	}
	if err := probe.Close(); err != nil {
		t.Fatal(err)
	}

	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	done := make(chan outcome, 1)
	go func() { done <- console{keys: keys, env: env}.invoke(ctx, "codec-server", "--listen", address) }()
	plain := `{"payloads":[{"metadata":{"encoding":"anNvbi9wbGFpbg=="},"data":"eyJhIjoxfQ=="}]}` // json/plain {"a":1}
	status := 0
	for range 500 {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/encode", strings.NewReader(plain))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
		if response, err := http.DefaultClient.Do(request); err == nil {
			status = response.StatusCode
			_ = response.Body.Close()
			break
		}
		time.Sleep(10 * time.Millisecond) // until it listens
	}
	interrupt()
	o := <-done
	if status != 200 || o.code != exitOK || !strings.Contains(o.errOut, "Log in at http://"+address+"/login") || !strings.Contains(o.errOut, `"operator":"olga"`) || !strings.Contains(o.errOut, "Stopped.") || strings.Contains(o.errOut, token) {
		t.Errorf("status %d, %+v", status, o)
	}
}

func TestCodecServerRefusesToStart(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		env  map[string]string
		says string
	}{
		"no tokens":     {nil, "FAIRLEAD_CODEC_TOKENS"},
		"a short token": {map[string]string{"FAIRLEAD_CODEC_TOKENS": "olga:hunter2"}, "less than 32"},
		"no database":   {map[string]string{"DATABASE_URL": ""}, "FAIRLEAD_DATABASE_URL"},
	} {
		o := console{keys: newKeyring(t), env: test.env}.invoke(t.Context(), "codec-server", "--listen", "127.0.0.1:0")
		if o.code != exitUsage || !strings.Contains(o.errOut, test.says) || strings.Contains(o.errOut, "hunter2") {
			t.Errorf("%s: %+v", name, o)
		}
	}
}
