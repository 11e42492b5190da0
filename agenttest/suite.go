package agenttest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/internal/authz"
	"github.com/fairlead/fairlead/internal/memstore"
	"github.com/fairlead/fairlead/memorypolicy"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/hashing"
	"github.com/fairlead/fairlead/model/scripted"
	"github.com/fairlead/fairlead/tool"
)

// Config says what is tested. Definition and one of Script and Model are
// required.
type Config struct {
	Definition definition.Definition
	// Tools are the agent's own. The built-in fetch_result and remember need no
	// mention.
	Tools []tool.Tool
	// Script plays the model, whichever one the definition names. A turn's Delay
	// and Hang pass in virtual time.
	Script scripted.Script
	// Model is asked instead of a Script.
	Model model.Model
	// Catalogue describes models that the default catalogue does not list. A
	// model that nobody describes is unpriced and has a window of 128,000 tokens.
	Catalogue []model.Entry
	// Policies holds *.cedar files and entities.json, as a worker's directory of
	// policies does. Nil means the built-in policies: users confirm the writes of
	// their own runs.
	Policies fs.FS
	// Summaries lets long conversations be summarized, as the definition says and
	// production does: the run that ends goes on until its summaries are made.
	// Script or Model writes them too. They are asked for by requests whose final
	// schema has the property open_tasks, which are moments and among
	// Result.Prompts like all others. Without Summaries a Suite makes none,
	// whatever the definition says: a script knows what it is asked.
	Summaries bool
	// Extractor plays the model that says what can be learned from a run, whichever
	// one the definition names; Extracts makes one. It is asked when a run has
	// ended, and the run goes on until what it proposes is decided. Without it
	// nothing is found in the words of users, as with Extracts(); the facts of tools
	// are learned all the same.
	Extractor scripted.Script
	// MemoryPolicy decides what is remembered and read; nil is the built-in one.
	MemoryPolicy *memorypolicy.Policy
	// Limits bound the tenant and its users; zero values are no limit.
	Limits activities.Limits
	// Patience is how long a run may stand still in real time, such as in a tool
	// that does not return. Zero means 10 s.
	Patience time.Duration
}

// Suite runs one agent, as often as a test likes. Its runs share one store: a
// run in a conversation sees what was said there before. It is not safe for
// concurrent use; parallel tests make one each.
type Suite struct {
	t           testing.TB
	config      Config
	policies    *authz.Policies
	definitions *definition.Set
	catalogue   model.Catalogue
	model       model.Model
	key         approval.Key
	stranger    approval.Key
	verifier    *approval.Verifier
	store       *memstore.Store
	clock       clock

	memoryPolicy *memorypolicy.Policy
	embedder     model.Embedder
}

// Whom and what Request is about.
const (
	defaultTenant = "acme"
	defaultUser   = "ann"
)

// New returns a Suite, or ends the test if the configuration cannot work.
func New(t testing.TB, config Config) *Suite {
	t.Helper()
	config.Definition.Summary.Off = config.Definition.Summary.Off || !config.Summaries
	s := &Suite{t: t, config: config, model: config.Model, key: approval.NewKey(), stranger: approval.NewKey(), catalogue: model.DefaultCatalogue()}
	s.clock.set(time.Now)
	s.store = memstore.New(s.clock.now)
	if err := s.prepare(); err != nil {
		t.Fatalf("agenttest: %v", err)
	}
	return s
}

func (s *Suite) prepare() (err error) {
	c := s.config
	switch {
	case (c.Script == nil) == (c.Model == nil):
		return errors.New("give a Script or a Model that plays the model, and not both")
	case c.Summaries && c.Definition.Summary.Off:
		return errors.New("the definition turns off the Summaries that are asked for")
	case c.Extractor != nil && !c.Definition.Memory.Learn:
		return errors.New("there is an Extractor, and the definition learns nothing: set memory.learn")
	case c.Patience < 0:
		return errors.New("the Patience is negative")
	case c.Patience == 0:
		s.config.Patience = 10 * time.Second
	}
	if s.policies = authz.Default(); c.Policies != nil {
		if s.policies, err = authz.Load(c.Policies); err != nil {
			return err
		}
	}
	if s.memoryPolicy = c.MemoryPolicy; s.memoryPolicy == nil {
		s.memoryPolicy = memorypolicy.Default()
	}
	if err := errors.Join(s.memoryPolicy.CheckFacts(c.Definition.Memory.Facts)...); err != nil {
		return err
	}
	if s.embedder, err = hashing.New(hashing.Options{}); err != nil {
		return err
	}
	if s.verifier, err = approval.NewVerifier(s.key.Public()); err != nil {
		return err
	}
	if s.definitions, err = definition.NewSet(c.Definition); err != nil {
		return err
	}
	for _, entry := range c.Catalogue {
		if s.catalogue, err = s.catalogue.With(entry); err != nil {
			return err
		}
	}
	for _, name := range s.modelNames() {
		if _, listed := s.catalogue.Lookup(name); listed {
			continue
		}
		s.catalogue, err = s.catalogue.With(model.Entry{Name: name, Provider: "scripted", Model: name, ContextWindow: 128_000, MaxOutputTokens: 8_192})
		if err != nil {
			return err
		}
	}
	registry, err := tool.NewRegistry(s.tools(nil)...)
	if err != nil {
		return err
	}
	if missing := registry.Missing(c.Definition.Tools); len(missing) > 0 {
		return fmt.Errorf("the definition lists tools that Config.Tools does not have: %s", strings.Join(missing, ", "))
	}
	return nil
}

// modelNames are the models that the definition names: the agent's, the one that
// writes summaries, and the one that says what can be learned.
func (s *Suite) modelNames() []string {
	d := s.config.Definition
	names := []string{d.Model}
	if !d.Summary.Off {
		names = append(names, d.Summary.Bounds(d.Model).Model)
	}
	if d.Memory.Learn {
		names = append(names, d.Memory.Bounds(d.Model).Model)
	}
	return names
}

// models returns those models, each under the eyes of w.
func (s *Suite) models(w *worker) *model.Resolver {
	adapters := make(map[string]model.Model)
	for _, name := range s.modelNames() {
		entry, _ := s.catalogue.Lookup(name)
		adapters[entry.Provider] = watchedModel{w}
	}
	return model.NewResolver(s.catalogue, adapters)
}

// modelTimeout is how long a model may take, by the name that its requests have.
func (s *Suite) modelTimeout(requested string) time.Duration {
	for _, name := range s.modelNames() {
		if entry, _ := s.catalogue.Lookup(name); entry.Model == requested {
			return entry.Timeout
		}
	}
	return model.DefaultTimeout
}

// tools returns all tools, each under the eyes of w; nil leaves them as they are.
func (s *Suite) tools(w *worker) []tool.Tool {
	var store activities.Store = s.store
	var memory activities.Memory = s.store
	if w != nil {
		store, memory = w, w.memory()
	}
	list := slices.Clone(s.config.Tools)
	for _, built := range []tool.Tool{
		tool.NewFetchResult(activities.Results{Store: store}),
		activities.NewRemember(activities.Remembering{Store: store, Memory: memory, MemoryPolicy: s.memoryPolicy, Now: s.clock.now}),
	} {
		if !slices.ContainsFunc(list, func(t tool.Tool) bool { return t != nil && t.Spec().Name == built.Spec().Name }) {
			list = append(list, built)
		}
	}
	if w != nil {
		for i, t := range list {
			list[i] = watch(w, t)
		}
	}
	return list
}

// Request returns the request by which Run starts a run: user ann of tenant
// acme, in the definition's first environment and a conversation of its own.
func (s *Suite) Request(message string) agent.RunRequest {
	id := uuid.NewString()
	req := agent.RunRequest{
		RunID: id, Tenant: defaultTenant, User: defaultUser, Conversation: "talk-" + id, Agent: s.config.Definition.Name, Message: message,
	}
	req.Environment = s.environment()
	return req
}

// environment is the definition's first one.
func (s *Suite) environment() string {
	if len(s.config.Definition.Environments) == 0 {
		return ""
	}
	return s.config.Definition.Environments[0]
}

// Run runs the agent on a message to its end. Events say what happens meanwhile;
// one that never came about fails the test.
func (s *Suite) Run(message string, events ...Event) *Result {
	s.t.Helper()
	return s.RunRequest(s.Request(message), events...)
}

// RunRequest is Run for a request that differs from the one of Request.
func (s *Suite) RunRequest(req agent.RunRequest, events ...Event) *Result {
	s.t.Helper()
	r := newRun(s, req)
	for _, e := range events {
		if err := r.add(e); err != nil {
			s.t.Fatalf("agenttest: %v", err)
		}
	}
	defer r.close()
	r.play()
	result := r.result()
	r.reportUnmet(ending(result))
	return result
}

// clock is the time of the current run, or of the last one.
type clock struct {
	mu  sync.Mutex
	get func() time.Time
}

func (c *clock) set(get func() time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.get = get
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	get := c.get
	c.mu.Unlock()
	return get()
}

// journal is what happened, for people.
type journal struct {
	mu    sync.Mutex
	lines []line
	log   bytes.Buffer
}

type line struct {
	at   time.Duration
	text string
}

func (j *journal) add(at time.Duration, format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line{at, fmt.Sprintf("%12s  %s", "+"+at.Round(time.Millisecond).String(), fmt.Sprintf(format, args...))})
}

// Write takes the workers' log lines.
func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.log.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var texts []string
	for _, l := range slices.SortedStableFunc(slices.Values(j.lines), func(a, b line) int { return cmp.Compare(a.at, b.at) }) {
		texts = append(texts, l.text)
	}
	text := strings.Join(texts, "\n")
	if j.log.Len() > 0 {
		text += "\nwhat the workers logged:\n" + j.log.String()
	}
	return text
}
