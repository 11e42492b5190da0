// Package config reads the settings of fairlead's programs: one YAML file, the
// environment on top of it, and for Temporal the settings that all Temporal
// programs share (address, namespace, TLS, API key, profile file).
//
// Every key of the file is also a variable: database.url is
// FAIRLEAD_DATABASE_URL. Secrets come from the environment only; a file that
// seems to hold one is refused. The package imports viper, Temporal's envconfig,
// and approval and vault for the form of their keys, and is called by the mains
// and by worker/host.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/viper"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
)

// DefaultFile is read when it exists and no other file was named.
const DefaultFile = "fairlead.yaml"

// Off is the value of http.address that serves nothing.
const Off = "off"

// Config is everything that a program can be told. Load fills in the defaults
// and validates; the zero value is of no use.
type Config struct {
	Database Database `mapstructure:"database"`
	// TaskQueue is the Temporal task queue that workers serve and runs use.
	TaskQueue string `mapstructure:"task_queue"`
	Log       Log    `mapstructure:"log"`
	HTTP      HTTP   `mapstructure:"http"`
	// UIURL is where the Temporal Web UI is found, for the links that the
	// starter prints.
	UIURL string `mapstructure:"ui_url"`
	// ShutdownGrace is how long a worker that was told to stop waits for what
	// it is doing.
	ShutdownGrace time.Duration `mapstructure:"shutdown_grace"`
	// WorkflowCache is how many workflows a worker keeps in memory between
	// their tasks. Zero replays every workflow at every task.
	WorkflowCache int `mapstructure:"workflow_cache"`
	// Catalogue is the file of the model catalogue; empty means the built-in.
	Catalogue string `mapstructure:"catalogue"`
	// Definitions is a directory of agent definitions to serve beside those
	// that are compiled in; empty means none.
	Definitions string `mapstructure:"definitions"`
	// Policies is a directory with *.cedar files and entities.json; empty means
	// the built-in policies. Workers and approvers' programs need the same ones.
	Policies string `mapstructure:"policies"`
	// Model replaces the model of every definition: a name of the catalogue, or
	// PROVIDER:NAME for a model that it does not list. Empty replaces nothing.
	Model       string      `mapstructure:"model"`
	Limits      Limits      `mapstructure:"limits"`
	Memory      Memory      `mapstructure:"memory"`
	Concurrency Concurrency `mapstructure:"concurrency"`

	// OpenAI, Approval, Encryption, Codec and Temporal are never read from the
	// file.
	OpenAI     OpenAI     `mapstructure:"-"`
	Approval   Approval   `mapstructure:"-"`
	Encryption Encryption `mapstructure:"-"`
	Codec      Codec      `mapstructure:"-"`
	Temporal   Temporal   `mapstructure:"-"`

	// File is the configuration file that was read, empty if none.
	File string `mapstructure:"-"`
}

// Database says how to reach PostgreSQL.
type Database struct {
	// URL may hold a password: print Config.Redacted instead.
	URL string `mapstructure:"url"`
	// MaxConns bounds the connections of one process.
	MaxConns int `mapstructure:"max_conns"`
}

// Log says what is logged and how.
type Log struct {
	// Level is debug, info, warn or error.
	Level string `mapstructure:"level"`
	// Format is json, console, or auto: console on a terminal, else json.
	Format string `mapstructure:"format"`
}

// HTTP is the server for health, readiness and metrics.
type HTTP struct {
	// Address is host:port, or Off.
	Address string `mapstructure:"address"`
}

// Limits hold for every tenant that has none of its own in the database. Zero
// is no limit.
type Limits struct {
	MaxRunning          int   `mapstructure:"max_running"`
	MaxRunningPerUser   int   `mapstructure:"max_running_per_user"`
	DailyTokens         int64 `mapstructure:"daily_tokens"`
	DailyCostMicros     int64 `mapstructure:"daily_cost_micros"`
	UserDailyTokens     int64 `mapstructure:"user_daily_tokens"`
	UserDailyCostMicros int64 `mapstructure:"user_daily_cost_micros"`
}

// Concurrency bounds what one worker process does at the same time.
type Concurrency struct {
	// Activities are queued model calls and slow reads.
	Activities int `mapstructure:"activities"`
	// LocalActivities are bookkeeping and fast reads.
	LocalActivities int `mapstructure:"local_activities"`
	WorkflowTasks   int `mapstructure:"workflow_tasks"`
	// Pollers is the number of long polls for each kind of task.
	Pollers int `mapstructure:"pollers"`
}

// OpenAI are the settings of the OpenAI-compatible provider, from the variables
// that all its clients share.
type OpenAI struct {
	APIKey  Secret
	BaseURL string
}

// Configured reports whether the provider can be used: a key for OpenAI itself,
// or the address of a compatible server.
func (o OpenAI) Configured() bool { return o.APIKey != "" || o.BaseURL != "" }

// Approval are the keys of package approval. Whoever holds Key can approve
// writes: it belongs to approvers' programs, and never to a worker.
type Approval struct {
	// Key is the private key in approvers' programs (FAIRLEAD_APPROVAL_KEY), empty
	// or well-formed.
	Key Secret
	// PublicKeys are what workers believe (FAIRLEAD_APPROVAL_PUBLIC_KEYS, separated
	// by commas). Without any, no write is ever confirmed.
	PublicKeys []string
}

// Keys of Approval, which name them in errors and give their variables.
const (
	keyApprovalKey        = "approval.key"
	keyApprovalPublicKeys = "approval.public_keys"
)

// Secret is a string that prints itself as "(set)". Value gives the text.
type Secret string

// Value returns the secret itself.
func (s Secret) Value() string { return string(s) }

// String withholds the secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "(set)"
}

// GoString withholds the secret from %#v.
func (s Secret) GoString() string { return s.String() }

// MarshalText withholds the secret from JSON.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Error is a setting that cannot be used. Its text never holds a secret.
type Error struct {
	// Key is the setting as in the file, such as "log.level".
	Key string
	// Problem says what is wrong and what to do.
	Problem string
}

// Error names the setting, and the variable that sets it too.
func (e *Error) Error() string {
	return fmt.Sprintf("configuration: %s (%s): %s", e.Key, Variable(e.Key), e.Problem)
}

// Variable returns the environment variable of a key.
func Variable(key string) string {
	return "FAIRLEAD_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// defaults lists every key that there is.
func defaults() map[string]any {
	return map[string]any{
		"database.url":                  "",
		"database.max_conns":            32,
		"task_queue":                    agent.TaskQueue,
		"log.level":                     "info",
		"log.format":                    "auto",
		"http.address":                  "127.0.0.1:9464",
		"ui_url":                        "http://127.0.0.1:8233",
		"shutdown_grace":                "20s",
		"workflow_cache":                2000,
		"catalogue":                     "",
		"definitions":                   "",
		"policies":                      "",
		"model":                         "",
		"limits.max_running":            100,
		"limits.max_running_per_user":   20,
		"limits.daily_tokens":           0,
		"limits.daily_cost_micros":      0,
		"limits.user_daily_tokens":      0,
		"limits.user_daily_cost_micros": 0,
		"memory.policy":                 "",
		"memory.embedder":               EmbedderHashing,
		"memory.dimensions":             0,
		"memory.embedder_previous":      "",
		"memory.dimensions_previous":    0,
		"memory.reconcile_every":        "1h",
		"concurrency.activities":        200,
		"concurrency.local_activities":  200,
		"concurrency.workflow_tasks":    200,
		"concurrency.pollers":           pollers(runtime.NumCPU()),
	}
}

// pollers is measured: on two cores more than four polls of a kind only cost the
// engine work, and each process added brings its own.
func pollers(cpus int) int { return min(max(2*cpus, 4), 16) }

// Keys returns every key of the file, sorted.
func Keys() []string {
	keys := make([]string, 0, len(defaults()))
	for key := range defaults() {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// Source says where settings come from.
type Source struct {
	// File is the file named by the person; if it is missing, that is an error.
	// Empty means DefaultFile, if it exists.
	File string
	// LookupEnv finds a variable. Nil is os.LookupEnv.
	LookupEnv func(string) (string, bool)
}

func (s Source) env(name string) string {
	lookup := s.LookupEnv
	if lookup == nil {
		lookup = os.LookupEnv
	}
	value, _ := lookup(name)
	return value
}

// Load reads and validates all settings. A variable that is set to nothing
// counts as not set.
func Load(source Source) (Config, error) {
	v := viper.New()
	for key, value := range defaults() {
		v.SetDefault(key, value)
	}
	file, err := readFile(v, source.File)
	if err != nil {
		return Config{}, err
	}
	for _, key := range Keys() {
		if value := source.env(Variable(key)); value != "" {
			v.Set(key, value)
		}
	}
	if source.env(Variable("database.url")) == "" {
		if value := source.env("DATABASE_URL"); value != "" {
			v.Set("database.url", value)
		}
	}

	c := Config{File: file}
	if err := v.UnmarshalExact(&c, strict); err != nil {
		return Config{}, decodeError(err)
	}
	c.OpenAI = OpenAI{APIKey: Secret(source.env("OPENAI_API_KEY")), BaseURL: source.env("OPENAI_BASE_URL")}
	c.Approval.Key = Secret(source.env(Variable(keyApprovalKey)))
	if list := source.env(Variable(keyApprovalPublicKeys)); list != "" {
		for text := range strings.SplitSeq(list, ",") {
			c.Approval.PublicKeys = append(c.Approval.PublicKeys, strings.TrimSpace(text))
		}
	}
	c.Encryption = Encryption{Key: Secret(source.env(Variable(keyEncryptionKey))), KeyURI: source.env(Variable(keyEncryptionKeyURI))}
	if c.Codec.Operators, err = parseOperators(source.env(Variable(keyCodecTokens))); err != nil {
		return Config{}, err
	}
	if err := c.validate(); err != nil {
		return Config{}, err
	}
	if c.Temporal, err = loadTemporal(source); err != nil {
		return Config{}, err
	}
	return c, nil
}

func (c Config) validate() error {
	var errs []error
	refuse := func(key, format string, args ...any) {
		errs = append(errs, &Error{Key: key, Problem: fmt.Sprintf(format, args...)})
	}
	oneOf := func(key, value string, allowed ...string) {
		if !slices.Contains(allowed, value) {
			refuse(key, "%q is not one of %s", value, strings.Join(allowed, ", "))
		}
	}
	atLeast := func(key string, value, least int64) {
		if value < least {
			refuse(key, "%d is too small, the least is %d", value, least)
		}
	}

	if c.Database.URL != "" {
		if problem := databaseURLProblem(c.Database.URL); problem != "" {
			refuse("database.url", "%s", problem)
		}
	}
	if !agent.ValidID(c.TaskQueue) {
		refuse("task_queue", "must be 1 to 128 ASCII letters, digits or . _ : @ -")
	}
	oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	oneOf("log.format", c.Log.Format, "auto", "json", "console")
	if c.HTTP.Address != Off {
		if _, _, err := net.SplitHostPort(c.HTTP.Address); err != nil {
			refuse("http.address", "%q is neither host:port nor %q", c.HTTP.Address, Off)
		}
	}
	if u, err := url.Parse(c.UIURL); err != nil || u.Host == "" || u.User != nil || (u.Scheme != "http" && u.Scheme != "https") {
		refuse("ui_url", "must be like https://temporal.example.org, without user and password")
	}
	if c.ShutdownGrace < time.Second || c.ShutdownGrace > 10*time.Minute {
		refuse("shutdown_grace", "%s is not between 1s and 10m", c.ShutdownGrace)
	}
	if key := c.Approval.Key.Value(); key != "" {
		if _, err := approval.ParseKey(key); err != nil {
			refuse(keyApprovalKey, "%v", err)
		}
	}
	for i, text := range c.Approval.PublicKeys {
		// Both kinds of key look alike; the values are not repeated because one may
		// be the private key.
		if err := approval.CheckPublicKey(text); err != nil {
			refuse(keyApprovalPublicKeys, "entry %d: %v", i+1, err)
		} else if text == c.Approval.Key.Value() {
			refuse(keyApprovalPublicKeys, "entry %d is the private key of %s; put the public key here, and make a new pair if a worker saw the private one", i+1, Variable(keyApprovalKey))
		}
	}
	errs = append(errs, c.Encryption.validate(), c.Memory.validate())
	atLeast("workflow_cache", int64(c.WorkflowCache), 0)
	atLeast("database.max_conns", int64(c.Database.MaxConns), 1)
	atLeast("limits.max_running", int64(c.Limits.MaxRunning), 0)
	atLeast("limits.max_running_per_user", int64(c.Limits.MaxRunningPerUser), 0)
	atLeast("limits.daily_tokens", c.Limits.DailyTokens, 0)
	atLeast("limits.daily_cost_micros", c.Limits.DailyCostMicros, 0)
	atLeast("limits.user_daily_tokens", c.Limits.UserDailyTokens, 0)
	atLeast("limits.user_daily_cost_micros", c.Limits.UserDailyCostMicros, 0)
	atLeast("concurrency.activities", int64(c.Concurrency.Activities), 1)
	atLeast("concurrency.local_activities", int64(c.Concurrency.LocalActivities), 1)
	// The SDK needs two of each, one for the sticky queue.
	atLeast("concurrency.workflow_tasks", int64(c.Concurrency.WorkflowTasks), 2)
	atLeast("concurrency.pollers", int64(c.Concurrency.Pollers), 2)
	return errors.Join(errs...)
}

// RequireDatabase returns an error that says how to name a database, if none is.
func (c Config) RequireDatabase() error {
	if c.Database.URL != "" {
		return nil
	}
	return &Error{Key: "database.url", Problem: "no database is named; set it (or DATABASE_URL) to postgres://user:password@host:port/database"}
}

func databaseURLProblem(text string) string {
	u, err := url.Parse(text)
	// The value is not repeated: it holds the password.
	if err != nil || u.Host == "" && u.Query().Get("host") == "" || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		return "must be like postgres://user:password@host:port/database"
	}
	return ""
}

// Redacted returns c in a form for logs: the database URL without its password,
// secrets only as set or not.
func (c Config) Redacted() Config {
	c.Database.URL = redactURL(c.Database.URL)
	c.OpenAI.APIKey = Secret(c.OpenAI.APIKey.String())
	c.OpenAI.BaseURL = redactURL(c.OpenAI.BaseURL)
	c.Approval.Key = Secret(c.Approval.Key.String())
	c.Encryption.Key = Secret(c.Encryption.Key.String())
	c.Codec = c.Codec.redacted()
	c.Temporal = c.Temporal.redacted()
	return c
}

func redactURL(text string) string {
	if text == "" {
		return ""
	}
	u, err := url.Parse(text)
	if err != nil {
		return "(malformed)"
	}
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	query := u.Query()
	for key := range query {
		if looksSecret(key) {
			query.Del(key)
		}
	}
	u.RawQuery = query.Encode()
	return cmp.Or(u.String(), "(malformed)")
}
