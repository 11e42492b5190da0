package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

func TestMemoryReads(t *testing.T) {
	t.Parallel()
	whose := []string{"--tenant", "acme", "--user", "ann"}
	for name, test := range map[string]struct {
		args  []string
		asked string
	}{
		"memory-list": {
			[]string{"list", "--environment", "production", "--past"},
			"memories acme/ann {Environment:production Kind: Key: Shared:{Kind: ID:} Past:true Limit:500 After:};candidates acme/ann  1000",
		},
		"memory-show":  {[]string{"show", "m-1"}, "trace acme/ann m-1"},
		"memory-trace": {[]string{"trace", "m-66"}, "trace acme/ann m-66"},
		"memory-trace-run": {
			[]string{"trace", "--run", "run-99"},
			"run acme/ann run-99;trace acme/ann m-66;trace acme/ann m-55",
		},
	} {
		for suffix, form := range map[string][]string{".txt": nil, ".json": {"--json"}} {
			c := remembering()
			o := c.invoke(t.Context(), slices.Concat([]string{"memory"}, test.args, whose, form)...)
			if o.code != exitOK || o.errOut != "" || strings.Join(c.memories.asked, ";") != test.asked {
				t.Errorf("%s%s: exit code %d, stderr %q, asked %q", name, suffix, o.code, o.errOut, c.memories.asked)
			}
			golden(t, name+suffix, o.out)
		}
	}
}

// TestLTM9OneCommandFromAStrangeAnswer is S3 §11: run-99 answered strangely. One
// command leads to the record, its source message, writer, validation, the
// decision that let it in, and every later run that it influenced.
func TestLTM9OneCommandFromAStrangeAnswer(t *testing.T) {
	t.Parallel()
	o := remembering().invoke(t.Context(), "memory", "trace", "--run", "run-99", "--tenant", "acme", "--json")
	var document runTraceDocument
	if err := json.Unmarshal([]byte(o.out), &document); err != nil || o.code != exitOK || len(document.Memories) != 2 {
		t.Fatalf("%v, %+v", err, o)
	}
	m := document.Memories[0]
	record := m.Versions[0]
	for what, got := range map[string][2]string{
		"record":     {m.ID + " " + string(record.Value), `m-66 "urgent"`},
		"tenant":     {record.Tenant + "/" + record.Subject + "/" + record.Scope.Environment, "acme/ann/production"},
		"source":     {string(record.SourceType) + " " + record.SourceID + " " + record.Quote, "user_statement msg-66 create an urgent ticket without asking"},
		"writer":     {record.Writer, "agent:opspilot@3"},
		"validation": {string(record.Validation), "user_stated"},
		"policy":     {record.Policy.Version + " " + record.Policy.Rules[0].ID, "legacy-3 mode.legacy"},
		"influenced": {m.Influenced[0].RunID + " " + m.Influenced[1].RunID, "run-71 run-99"},
	} {
		if got[0] != got[1] {
			t.Errorf("%s is %q, want %q", what, got[0], got[1])
		}
	}
	if m.Source == nil || !strings.Contains(m.Source.Content, "This once:") {
		t.Errorf("the source message is %+v", m.Source)
	}
	if !document.Memories[1].Hidden || len(document.Memories[1].Versions) != 0 {
		t.Errorf("the other memory is %+v", document.Memories[1])
	}
}

// TestTraceShowsTheVersionThatWasGiven: what a run was given may have been
// corrected since.
func TestTraceShowsTheVersionThatWasGiven(t *testing.T) {
	t.Parallel()
	c := remembering()
	c.memories.given = []db.MemoryInfluence{{RunID: "run-99", Record: "m-1", Version: 1, User: "ann", Rank: 1, Via: "exact", At: at(1500)}}
	o := c.invoke(t.Context(), "memory", "trace", "--run", "run-99", "--tenant", "acme", "--user", "ann")
	given, other := strings.Index(o.out, "m-1  default_environment  version 1  superseded"), strings.Index(o.out, "\nOther versions\nm-1")
	if o.code != exitOK || given < 0 || other < given || strings.Index(o.out, "use staging") > other || strings.Index(o.out, "default to production") < other {
		t.Errorf("%+v", o)
	}
}

// TestERASE1Export shows that an export has everything of the person, and
// nothing of others and of internal rules.
func TestERASE1Export(t *testing.T) {
	t.Parallel()
	c := remembering()
	bobs := ownerMemory()
	bobs.Version, bobs.User, bobs.Value, bobs.Evidence.Quote, bobs.Writer = 2, "bob", []byte(`{"owner":"bobs-canary","service":"payment"}`), "bobs-canary", "user:bob"
	c.memories.records = append(c.memories.records, bobs)
	other := proposals()[2]
	other.ID, other.Room.Scope.User = "p-bob", "bob"
	c.memories.candidates = append(c.memories.candidates, other)
	c.memories.records[1].EndedBy = "user:bob"
	synctest.Test(t, func(t *testing.T) {
		o := c.invoke(t.Context(), "memory", "export", "--tenant", "acme", "--user", "ann")
		if o.code != exitOK || o.errOut != "" {
			t.Errorf("%+v", o)
		}
		golden(t, "memory-export.json", o.out)
		// Bob, olga the reviewer, rules, digests, hashes, nonces.
		for _, word := range []string{"bob", "olga", "mode.immediate", "2026-11-01", "cdcd", "efef", "nonce", "p-2", "@4", "0.9", "0.6", "candidate"} {
			if strings.Contains(o.out, word) {
				t.Errorf("the export holds %q", word)
			}
		}
	})
}

func TestExportFile(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "ann.json")
	export := []string{"memory", "export", "--tenant", "acme", "--user", "ann", "--output", name}
	o := remembering().invoke(t.Context(), export...)
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm() != 0o600 || o.code != exitOK || o.out != "" || o.errOut != "Exported to "+name+".\n" {
		t.Fatalf("%v, %+v", err, o)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var document exportDocument
	if err := json.Unmarshal(text, &document); err != nil || document.Format != "fairlead-memory-export-1" || len(document.Memories) != 3 || len(document.Proposals) != 3 {
		t.Errorf("%v, %s", err, text)
	}
	// It is never written over, nor through a link.
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Join(t.TempDir(), "elsewhere"), link); err != nil {
		t.Fatal(err)
	}
	for _, there := range []string{name, link} {
		o := remembering().invoke(t.Context(), "memory", "export", "--user", "ann", "--output", there)
		if o.code != exitUsage || !strings.Contains(o.errOut, "exists already") {
			t.Errorf("%+v", o)
		}
	}
	o = remembering().invoke(t.Context(), "memory", "export", "--user", "ann", "--output", filepath.Join(name, "x"))
	if o.code != exitUsage || !strings.Contains(o.errOut, "cannot be written") {
		t.Errorf("%+v", o)
	}
	if again, _ := os.ReadFile(name); string(again) != string(text) {
		t.Error("the file was changed")
	}
}

func TestMemoryPages(t *testing.T) {
	t.Parallel()
	c := remembering()
	c.memories.records = nil
	for i := range 1250 {
		for _, r := range versionsOfEnvironment() {
			r.ID = fmt.Sprintf("m-%04d", i)
			c.memories.records = append(c.memories.records, r)
		}
	}
	o := c.invoke(t.Context(), "memory", "export", "--tenant", "acme", "--user", "ann")
	var document exportDocument
	if err := json.Unmarshal([]byte(o.out), &document); err != nil || len(document.Memories) != 1250 || document.Memories[1249].ID != "m-1249" || len(document.Memories[1249].Versions) != 2 || len(c.memories.asked) != 4 {
		t.Errorf("%v: %d memories, asked %q", err, len(document.Memories), c.memories.asked)
	}
}

func TestProposalsFitTheFilter(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"key":                 {[]string{"--key", "tone"}, "p-7 p-9"},
		"kind":                {[]string{"--kind", "validated_fact"}, "p-8"},
		"environment":         {[]string{"--environment", "production"}, "p-7 p-8 p-9"},
		"another environment": {[]string{"--environment", "test"}, ""},
	} {
		o := remembering().invoke(t.Context(), slices.Concat([]string{"memory", "list", "--user", "ann", "--json"}, test.args)...)
		var document memoryListDocument
		if err := json.Unmarshal([]byte(o.out), &document); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range document.Proposals {
			got = append(got, p.ID)
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestMemoryThatCannotBeRead(t *testing.T) {
	t.Parallel()
	c := remembering()
	c.memories.records = []db.MemoryRecord{environmentMemory(), deletedMemory()}
	c.memories.records[0].Value, c.memories.records[0].Evidence = nil, db.MemoryEvidence{}
	o := c.invoke(t.Context(), "memory", "list", "--user", "ann", "--past")
	if o.code != exitOK || strings.Count(o.out, "its content cannot be read") != 1 {
		t.Errorf("%+v", o)
	}
}

func TestNothingRemembered(t *testing.T) {
	t.Parallel()
	empty := func() console { return console{memories: &fakeMemories{}} }
	if o := empty().invoke(t.Context(), "memory", "list", "--user", "ann"); o.code != exitOK || o.errOut != "Nothing is remembered of user ann in tenant demo.\n" {
		t.Errorf("%+v", o)
	}
	if o := empty().invoke(t.Context(), "memory", "list", "--user", "ann", "--json"); strings.Join(strings.Fields(o.out), "") != `{"memories":[],"proposals":[]}` {
		t.Errorf("%+v", o)
	}
	if o := empty().invoke(t.Context(), "memory", "trace", "--run", "run-1"); o.code != exitOK || o.errOut != "Run run-1 was given no memories.\n" {
		t.Errorf("%+v", o)
	}
}

// TestMemoryErrors: what is not there and what is another's are the same.
func TestMemoryErrors(t *testing.T) {
	t.Parallel()
	ann := []string{"--tenant", "acme", "--user", "ann"}
	for name, test := range map[string]struct {
		args []string
		err  error
		code int
		says string
	}{
		"show unknown":      {[]string{"show", "m-9"}, nil, exitUsage, "there is no memory m-9 in tenant acme that user ann may see"},
		"trace unknown":     {[]string{"trace", "m-9"}, nil, exitUsage, "there is no memory m-9 in tenant acme that user ann may see"},
		"correct unknown":   {[]string{"correct", "m-9", "--value", "x"}, nil, exitUsage, "there is no memory m-9 in tenant acme that user ann may see"},
		"forget unknown":    {[]string{"forget", "m-9"}, nil, exitUsage, "there is no memory m-9 in tenant acme that user ann may see"},
		"trace, no run":     {[]string{"trace", "--run", "run-9"}, db.ErrNotFound, exitUsage, "there is no run run-9 in tenant acme that this user may see"},
		"down":              {[]string{"list"}, db.ErrUnavailable, exitUnreachable, "PostgreSQL cannot be reached"},
		"old schema":        {[]string{"list"}, &db.SchemaError{Need: 4}, exitUnreachable, "migrate"},
		"erased":            {[]string{"export"}, db.ErrKeysDestroyed, exitUsage, "the user was erased"},
		"damaged":           {[]string{"show", "m-1"}, fmt.Errorf("open: %w", db.ErrSealed), exitRunFailed, "cannot be decrypted"},
		"trace what":        {[]string{"trace"}, nil, exitUsage, "or --run RUN_ID"},
		"past and rejected": {[]string{"list", "--past", "--rejected"}, nil, exitUsage, "either --past or --rejected"},
		"no ID":             {[]string{"show"}, nil, exitUsage, "needs one ID"},
		"an odd ID":         {[]string{"show", "m 1\x1b[2J"}, nil, exitUsage, "the ID must be"},
		"an odd kind":       {[]string{"list", "--kind", "preference"}, nil, exitUsage, "--kind must be one of profile_preference"},
		"an odd key":        {[]string{"list", "--key", "a b"}, nil, exitUsage, "--key must be"},
		"both":              {[]string{"trace", "m-1", "--run", "run-1"}, nil, exitUsage, "either an ID or --run"},
		"an odd run":        {[]string{"trace", "--run", "a b"}, nil, exitUsage, "--run must be"},
		"an empty run":      {[]string{"trace", "--run", ""}, nil, exitUsage, "--run must be"},
		"no file":           {[]string{"export", "--output", ""}, nil, exitUsage, "--output needs"},
		"no value":          {[]string{"correct", "m-1"}, nil, exitUsage, "--value is missing"},
		"a long value":      {[]string{"correct", "m-1", "--value", strings.Repeat("x", 4097)}, nil, exitUsage, "the limit is 4096"},
		"a broken value":    {[]string{"correct", "m-1", "--value", "\xff"}, nil, exitUsage, "not valid UTF-8"},
		"no JSON":           {[]string{"correct", "m-2", "--value", "team-a"}, nil, exitUsage, "--value must be JSON here"},
		"not in force":      {[]string{"correct", "m-3", "--value", "x"}, nil, exitUsage, "memory m-3 is not in force (deleted)"},
		"all and one":       {[]string{"forget", "m-1", "--all"}, nil, exitUsage, "either an ID or --all"},
		"nobody to ask":     {[]string{"forget", "--all"}, nil, exitUsage, "give --yes"},
		"nobody to ask, 2":  {[]string{"erase"}, nil, exitUsage, "give --yes-erase ann"},
		"another one":       {[]string{"erase", "--yes-erase", "bob"}, nil, exitUsage, "another user"},
		"an odd eraser":     {[]string{"erase", "--yes-erase", "ann", "--by", "a b"}, nil, exitUsage, "--by must be"},
		"an odd tenant":     {[]string{"reconcile", "--tenant", "a b"}, nil, exitUsage, "--tenant must be"},
		"reconcile for one": {[]string{"reconcile", "m-1"}, nil, exitUsage, "takes no arguments"},
	} {
		c := remembering()
		c.memories.err = test.err
		args := append([]string{"memory"}, test.args...)
		if test.args[0] != "reconcile" {
			args = append(args, ann...)
		}
		o := c.invoke(t.Context(), args...)
		if o.code != test.code || !strings.Contains(o.errOut, test.says) || o.out != "" || len(c.engine.jobs) > 0 {
			t.Errorf("%s: %+v, jobs %+v", name, o, c.engine.jobs)
		}
		if strings.Contains(o.errOut, "\x1b") || strings.Contains(o.errOut, "xxxx") {
			t.Errorf("%s: stderr repeats what was given: %q", name, o.errOut)
		}
	}
	if o := remembering().invoke(t.Context(), "memory", "recall"); o.code != exitUsage || !strings.Contains(o.errOut, "there is no command") {
		t.Errorf("unknown command: %+v", o)
	}
	for _, args := range [][]string{{"list"}, {"receipts"}, {"correct", "m-1", "--value", "x"}, {"forget", "m-1"}, {"erase", "--yes-erase", "ann"}, {"export"}} {
		if o := remembering().invoke(t.Context(), append([]string{"memory"}, args...)...); o.code != exitUsage || !strings.Contains(o.errOut, "--user is missing") {
			t.Errorf("%q: %+v", args, o)
		}
	}
	c := remembering()
	c.env = map[string]string{"FAIRLEAD_ENCRYPTION_KEY": ""}
	if o := c.invoke(t.Context(), "memory", "list", "--user", "ann"); o.code != exitUsage || !strings.Contains(o.errOut, "FAIRLEAD_ENCRYPTION_KEY") {
		t.Errorf("no key: %+v", o)
	}
	if o := remembering().invoke(t.Context(), "memory", "show", "m-9", "--tenant", "acme"); !strings.Contains(o.errOut, "there is no memory m-9 in tenant acme; see") {
		t.Errorf("the operator: %+v", o)
	}
}

func TestMemoryReconcile(t *testing.T) {
	t.Parallel()
	report := agent.ReconcileReport{
		Tenants: 2, Expired: 3, Residue: 1, Missing: 4, Writes: make([]agent.MemoryWriteInput, 2), Lessons: make([]agent.LearnInput, 1), Reindex: "new@768", More: true,
	}
	for name, args := range map[string][]string{"memory-reconcile.txt": nil, "memory-reconcile.json": {"--json"}} {
		c := remembering()
		c.engine.answer = report
		o := c.invoke(t.Context(), append([]string{"memory", "reconcile", "--tenant", "acme"}, args...)...)
		if o.code != exitOK || (args == nil) != strings.Contains(o.errOut, "ask again") {
			t.Errorf("%s: %+v", name, o)
		}
		golden(t, name, o.out)
		if want := (job{workflowID: "reconcile-memory", workflow: "ReconcileMemory", input: agent.ReconcileInput{Tenant: "acme"}}); len(c.engine.jobs) != 1 || c.engine.jobs[0] != want {
			t.Errorf("%s: jobs %+v", name, c.engine.jobs)
		}
	}
}

func TestReconcileOfATaskQueue(t *testing.T) {
	t.Parallel()
	c := remembering()
	c.engine.answer, c.env = agent.ReconcileReport{}, map[string]string{"FAIRLEAD_TASK_QUEUE": "other"}
	if o := c.invoke(t.Context(), "memory", "reconcile"); o.code != exitOK || o.errOut != "" || c.engine.jobs[0].workflowID != "reconcile-memory~other" {
		t.Errorf("%+v, jobs %+v", o, c.engine.jobs)
	}
}

func TestParticipants(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args  []string
		err   error
		code  int
		says  string
		asked string
	}{
		"add":          {[]string{"add", "--group", "ops", "--user", "ann", "--by", "olga"}, nil, exitOK, "User ann takes part in group ops of tenant acme.\n", "add ann to acme group/ops by olga"},
		"remove":       {[]string{"remove", "--project", "apollo", "--user", "ann", "--by", "olga"}, nil, exitOK, "User ann takes no part any more in project apollo of tenant acme.\n", "remove ann from acme project/apollo by olga"},
		"never was":    {[]string{"remove", "--group", "ops", "--user", "ann", "--by", "olga"}, db.ErrNotFound, exitUsage, "user ann takes no part in group ops of tenant acme", "remove ann from acme group/ops by olga"},
		"a race":       {[]string{"add", "--group", "ops", "--user", "ann", "--by", "olga"}, db.ErrConflict, exitRunFailed, "ask again", "add ann to acme group/ops by olga"},
		"down":         {[]string{"list", "--group", "ops"}, db.ErrUnavailable, exitUnreachable, "PostgreSQL", "participants acme group/ops"},
		"neither":      {[]string{"add", "--user", "ann", "--by", "olga"}, nil, exitUsage, "either --group or --project", ""},
		"both":         {[]string{"list", "--group", "ops", "--project", "apollo"}, nil, exitUsage, "either --group or --project", ""},
		"nobody":       {[]string{"add", "--group", "ops", "--by", "olga"}, nil, exitUsage, "--user and --by are needed", ""},
		"by nobody":    {[]string{"remove", "--group", "ops", "--user", "ann"}, nil, exitUsage, "--user and --by are needed", ""},
		"an odd group": {[]string{"list", "--group", "a b"}, nil, exitUsage, "--group", ""},
		"an odd user":  {[]string{"add", "--group", "ops", "--user", "a b", "--by", "olga"}, nil, exitUsage, "--user and --by must be", ""},
	} {
		c := remembering()
		c.memories.err = test.err
		// Who takes part is no content.
		c.env = map[string]string{"FAIRLEAD_ENCRYPTION_KEY": ""}
		o := c.invoke(t.Context(), slices.Concat([]string{"memory", "participants"}, test.args, []string{"--tenant", "acme"})...)
		if o.code != test.code || !strings.Contains(o.out+o.errOut, test.says) || strings.Join(c.memories.asked, ";") != test.asked {
			t.Errorf("%s: %+v, asked %q", name, o, c.memories.asked)
		}
	}
	found := []db.Participant{
		{Scope: agent.MemoryScope{Kind: agent.MemoryOfGroup, ID: "ops"}, User: "ann", AddedBy: "olga", AddedAt: at(0)},
		{Scope: agent.MemoryScope{Kind: agent.MemoryOfGroup, ID: "ops"}, User: "bob", AddedBy: "olga", AddedAt: at(0), RemovedBy: "ann", RemovedAt: ptr(at(5000))},
	}
	for name, args := range map[string][]string{"memory-participants.txt": nil, "memory-participants.json": {"--json"}} {
		c := remembering()
		c.memories.participants = found
		o := c.invoke(t.Context(), append([]string{"memory", "participants", "list", "--group", "ops", "--tenant", "acme"}, args...)...)
		if o.code != exitOK || o.errOut != "" {
			t.Errorf("%s: %+v", name, o)
		}
		golden(t, name, o.out)
	}
}

func TestShowMemoryOfARun(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"show-memory.txt": nil, "show-memory.json": {"--json"}} {
		r := report()
		r.Run.Memory = &agent.MemoryUse{Recall: agent.RecallFound, Records: 2, KeywordOnly: true, Learning: agent.LearningStarted}
		c := console{reader: &fakeReader{reports: []db.RunReport{r}, given: remembering().memories.given}}
		o := c.invoke(t.Context(), append([]string{"show", "run-1", "--tenant", "acme", "--user", "ann"}, args...)...)
		if o.code != exitOK || o.errOut != "" {
			t.Errorf("%s: %+v", name, o)
		}
		golden(t, name, o.out)
	}
	for use, want := range map[agent.MemoryUse]string{
		{Recall: agent.RecallOff, Learning: agent.LearningOff}:              "recall off",
		{Recall: agent.RecallNothing, Learning: agent.LearningStarted}:      "nothing is remembered; learning from it was started",
		{Recall: agent.RecallFound, Records: 1, Learning: "off"}:            "1 memory recalled",
		{Recall: agent.RecallUnavailable, Learning: agent.LearningNotSaved}: "memory_unavailable: memory could not be read, and the run went on without; not_saved: learning from it could not be started, and is tried again",
	} {
		if got := memoryUse(use); got != want {
			t.Errorf("%+v: %q, want %q", use, got, want)
		}
	}
}
