package config_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/internal/config"
)

// load reads settings from a file with the given text (none if empty) and from
// the given variables alone.
func load(t *testing.T, text string, env map[string]string) (config.Config, error) {
	t.Helper()
	source := config.Source{LookupEnv: func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}}
	if text != "" {
		source.File = filepath.Join(t.TempDir(), "settings.yaml")
		if err := os.WriteFile(source.File, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return config.Load(source)
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	c, err := load(t, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.TaskQueue != "fairlead" || c.HTTP.Address != "127.0.0.1:9464" || c.ShutdownGrace != 20*time.Second ||
		c.Temporal.Address != "127.0.0.1:7233" || c.Temporal.Namespace != "default" || c.Log.Level != "info" {
		t.Errorf("unexpected defaults: %+v", c)
	}
	if err := c.RequireDatabase(); err == nil || !strings.Contains(err.Error(), "FAIRLEAD_DATABASE_URL") {
		t.Errorf("a missing database is not explained: %v", err)
	}
}

func TestFileAndEnvironment(t *testing.T) {
	t.Parallel()
	file := `
database:
  url: postgres://app@db.example.org/fairlead
task_queue: from-file
shutdown_grace: 5s
log:
  level: warn
limits:
  max_running: 7
  daily_tokens: 3000000000
`
	c, err := load(t, file, map[string]string{
		"FAIRLEAD_TASK_QUEUE":          "from-env",
		"FAIRLEAD_LIMITS_DAILY_TOKENS": "42",
		"FAIRLEAD_WORKFLOW_CACHE":      "0",
		"FAIRLEAD_LOG_LEVEL":           "",
		"OPENAI_BASE_URL":              "http://localhost:11434/v1",
		"TEMPORAL_ADDRESS":             "temporal.example.org:7233",
		"TEMPORAL_NAMESPACE":           "ops",
		"TEMPORAL_API_KEY":             "temporal-key",
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.TaskQueue != "from-env" || c.Limits.DailyTokens != 42 || c.WorkflowCache != 0 {
		t.Errorf("the environment does not win: %+v", c)
	}
	if c.Database.URL != "postgres://app@db.example.org/fairlead" || c.Limits.MaxRunning != 7 ||
		c.ShutdownGrace != 5*time.Second || c.Log.Level != "warn" {
		t.Errorf("the file was not read, or an empty variable counted: %+v", c)
	}
	if !c.OpenAI.Configured() || !c.Temporal.TLS || !c.Temporal.APIKey || c.Temporal.Namespace != "ops" {
		t.Errorf("providers: %+v %+v", c.OpenAI, c.Temporal)
	}
	if options := c.Temporal.Options(); options.HostPort != "temporal.example.org:7233" || options.Credentials == nil || options.ConnectionOptions.TLS == nil {
		t.Errorf("the API key does not turn on TLS: %+v", options)
	}
}

func TestDatabaseURLFallback(t *testing.T) {
	t.Parallel()
	general := map[string]string{"DATABASE_URL": "postgres://general@h/d"}
	if c, err := load(t, "", general); err != nil || c.Database.URL != "postgres://general@h/d" {
		t.Errorf("DATABASE_URL: %q, %v", c.Database.URL, err)
	}
	general["FAIRLEAD_DATABASE_URL"] = "postgres://own@h/d"
	if c, err := load(t, "", general); err != nil || c.Database.URL != "postgres://own@h/d" {
		t.Errorf("FAIRLEAD_DATABASE_URL: %q, %v", c.Database.URL, err)
	}
}

func TestFileRefused(t *testing.T) {
	t.Parallel()
	const canary = "hunter2canary"
	for name, test := range map[string]struct{ file, want string }{
		"unknown key":          {"task_que: x\n", `unknown key "task_que"`},
		"unknown nested key":   {"limits:\n  max_runing: 3\n", `unknown key "limits.max_runing"`},
		"section as a value":   {"limits: 5\n", `unknown key "limits"`},
		"api key":              {"openai:\n  api_key: " + canary + "\n", "looks like a secret"},
		"camel api key":        {"openaiApiKey: " + canary + "\n", "looks like a secret"},
		"password":             {"database:\n  password: " + canary + "\n", "looks like a secret"},
		"approval key":         {"approval:\n  key: " + canary + "\n", "looks like a secret"},
		"approval key, flat":   {"approval_key: " + canary + "\n", "looks like a secret"},
		"public keys":          {"approval:\n  public_keys: " + canary + "\n", "set FAIRLEAD_APPROVAL_PUBLIC_KEYS"},
		"encryption key":       {"encryption:\n  key: " + canary + "\n", "looks like a secret"},
		"encryption key, flat": {"encryptionKey: " + canary + "\n", "looks like a secret"},
		"encryption key URI":   {"encryption:\n  key_uri: gcp-kms://" + canary + "\n", "set FAIRLEAD_ENCRYPTION_KEY_URI"},
		"codec tokens":         {"codec:\n  tokens: olga:" + canary + "\n", "looks like a secret"},
		"client secret":        {"client-secret: " + canary + "\n", "looks like a secret"},
		"password in URL":      {"database:\n  url: postgres://u:" + canary + "@h/d\n", "FAIRLEAD_DATABASE_URL"},
		"password in query":    {"database:\n  url: postgres://u@h/d?password=" + canary + "\n", "holds a password"},
		"broken URL":           {"database:\n  url: 'postgres://u:" + canary + "%zz@h/d'\n", "holds a password"},
		"bare duration":        {"shutdown_grace: 20\n", "duration"},
		"fraction":             {"limits:\n  max_running: 2.5\n", "not a whole number"},
		"number as text":       {"task_queue: 12\n", "put it into quotes"},
		"two documents":        {"task_queue: [\n", "settings.yaml"},
		"duplicate key":        {"task_queue: a\ntask_queue: b\n", "already defined"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, test.file, nil)
			if err == nil {
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %q, want it to contain %q", err, test.want)
			}
			if strings.Contains(err.Error(), canary) {
				t.Errorf("the error repeats the secret: %q", err)
			}
		})
	}
}

func TestMissingNamedFile(t *testing.T) {
	t.Parallel()
	_, err := config.Load(config.Source{File: filepath.Join(t.TempDir(), "absent.yaml")})
	if err == nil || !strings.Contains(err.Error(), "absent.yaml") {
		t.Errorf("got %v", err)
	}
}

func TestValuesRefused(t *testing.T) {
	t.Parallel()
	for variable, value := range map[string]string{
		"FAIRLEAD_DATABASE_URL":               "mysql://u:hunter2canary@h/d",
		"FAIRLEAD_LOG_LEVEL":                  "loud",
		"FAIRLEAD_LOG_FORMAT":                 "xml",
		"FAIRLEAD_HTTP_ADDRESS":               "9464",
		"FAIRLEAD_TASK_QUEUE":                 "a queue",
		"FAIRLEAD_SHUTDOWN_GRACE":             "0s",
		"FAIRLEAD_WORKFLOW_CACHE":             "-1",
		"FAIRLEAD_LIMITS_MAX_RUNNING":         "many",
		"FAIRLEAD_LIMITS_USER_DAILY_TOKENS":   "-5",
		"FAIRLEAD_CONCURRENCY_WORKFLOW_TASKS": "1",
		"FAIRLEAD_UI_URL":                     "localhost",
	} {
		t.Run(variable, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, "", map[string]string{variable: value})
			if err == nil {
				t.Fatal("accepted")
			}
			key := strings.ToLower(strings.TrimPrefix(variable, "FAIRLEAD_"))
			if text := err.Error(); !strings.Contains(strings.ReplaceAll(text, ".", "_"), key) {
				t.Errorf("the error does not name the setting: %q", text)
			}
			if strings.Contains(err.Error(), "hunter2canary") {
				t.Errorf("the error repeats the secret: %q", err)
			}
		})
	}
}

func TestApproval(t *testing.T) {
	t.Parallel()
	first, second := approval.NewKey(), approval.NewKey()
	load := func(key, public string) (config.Config, error) {
		return load(t, "policies: /etc/fairlead/policies\n", map[string]string{"FAIRLEAD_APPROVAL_KEY": key, "FAIRLEAD_APPROVAL_PUBLIC_KEYS": public})
	}
	c, err := load(first.Encode(), first.Public()+" , "+second.Public())
	if err != nil {
		t.Fatal(err)
	}
	if c.Approval.Key.Value() != first.Encode() || !slices.Equal(c.Approval.PublicKeys, []string{first.Public(), second.Public()}) || c.Policies != "/etc/fairlead/policies" {
		t.Errorf("%+v, policies %q", c.Approval, c.Policies)
	}
	if text := fmt.Sprintf("%+v %#v", c.Approval, c.Approval); strings.Contains(text, first.Encode()) {
		t.Errorf("the key prints itself: %s", text)
	}
	encoded, err := json.Marshal(c.Redacted())
	if err != nil || strings.Contains(string(encoded), first.Encode()) || !strings.Contains(string(encoded), first.Public()) {
		t.Errorf("redacted: %s, %v", encoded, err)
	}
	if redacted := c.Redacted().Approval.Key.Value(); redacted != "(set)" {
		t.Errorf("redacted key: %q", redacted)
	}
	if c, err := load("", ""); err != nil || c.Approval.Key != "" || c.Approval.PublicKeys != nil {
		t.Errorf("nothing is set: %+v, %v", c.Approval, err)
	}
	for name, test := range map[string]struct{ key, public, want string }{
		"no base64":       {"hunter2canary", "", "FAIRLEAD_APPROVAL_KEY"},
		"a short key":     {first.Encode()[:40], "", "starter approval-key"},
		"no public key":   {"", "hunter2canary", "entry 1"},
		"an empty entry":  {"", first.Public() + ",", "entry 2"},
		"another kind":    {"", first.Public() + "," + second.Public()[:40], "entry 2"},
		"the private key": {first.Encode(), second.Public() + "," + first.Encode(), "entry 2 is the private key"},
	} {
		_, err := load(test.key, test.public)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q in it", name, err, test.want)
			continue
		}
		for _, secret := range []string{"hunter2canary", first.Encode()[:40]} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s: the error repeats the value: %v", name, err)
			}
		}
	}
}

func TestEveryFaultIsNamed(t *testing.T) {
	t.Parallel()
	_, err := load(t, "", map[string]string{"FAIRLEAD_LOG_LEVEL": "loud", "FAIRLEAD_LOG_FORMAT": "xml"})
	var fault *config.Error
	if !errors.As(err, &fault) || !strings.Contains(err.Error(), "log.level") || !strings.Contains(err.Error(), "log.format") {
		t.Errorf("got %v", err)
	}
}

func TestRedacted(t *testing.T) {
	t.Parallel()
	c, err := load(t, "", map[string]string{
		"DATABASE_URL":     "postgres://app:hunter2canary@h/d?sslmode=disable&password=hunter2canary",
		"OPENAI_API_KEY":   "sk-hunter2canary",
		"OPENAI_BASE_URL":  "https://u:hunter2canary@llm.example.org/v1",
		"TEMPORAL_API_KEY": "hunter2canary",
	})
	if err != nil {
		t.Fatal(err)
	}
	redacted := c.Redacted()
	encoded, err := json.Marshal(redacted)
	if err != nil {
		t.Fatal(err)
	}
	for form, text := range map[string]string{
		"%+v": fmt.Sprintf("%+v", redacted), "%#v": fmt.Sprintf("%#v", redacted), "JSON": string(encoded),
	} {
		if strings.Contains(text, "hunter2canary") {
			t.Errorf("%s of the redacted form holds a secret: %s", form, text)
		}
	}
	if want := "postgres://app@h/d?sslmode=disable"; redacted.Database.URL != want {
		t.Errorf("database URL is %q, want %q", redacted.Database.URL, want)
	}
	if text := fmt.Sprintf("%+v %#v", c.OpenAI, c.OpenAI); strings.Contains(text, "sk-") {
		t.Errorf("the key prints itself: %s", text)
	}
	if c.OpenAI.APIKey.Value() != "sk-hunter2canary" || !strings.Contains(c.Database.URL, "hunter2canary") {
		t.Error("redaction changed the original")
	}
}
