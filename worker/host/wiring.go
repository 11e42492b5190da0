package host

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"strings"

	"go.uber.org/zap"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/authz"
	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/memorypolicy"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/model/openai"
	"github.com/fairlead/fairlead/tool"
)

// providerOpenAI is the catalogue's name of the OpenAI-compatible provider.
const providerOpenAI = "openai"

// wiring is what the activities work with.
type wiring struct {
	definitions *definition.Set
	tools       *tool.Registry
	models      *model.Resolver
	policies    *authz.Policies
	approvals   *approval.Verifier
	store       activities.Store
	memory      activities.Memory
	policy      *memorypolicy.Policy
	embedders   []model.Embedder
}

// wire puts the parts together and refuses what could only fail later, in a
// run: a definition with a tool or model that this worker does not have.
func wire(options Options, settings config.Config, database *db.DB, log *zap.Logger) (wiring, error) {
	catalogue, err := loadCatalogue(options, settings)
	if err != nil {
		return wiring{}, err
	}
	definitions, err := loadDefinitions(options, settings)
	if err != nil {
		return wiring{}, err
	}
	if settings.Model != "" {
		if catalogue, definitions, err = override(settings.Model, catalogue, definitions); err != nil {
			return wiring{}, err
		}
	}
	adapters, err := adapters(options, settings)
	if err != nil {
		return wiring{}, err
	}
	w := wiring{
		definitions: definitions, models: model.NewResolver(catalogue, adapters),
		store: activities.PostgreSQL(database), memory: activities.PostgreSQLMemory(database),
	}
	if w.policy, err = loadMemoryPolicy(settings); err != nil {
		return wiring{}, err
	}
	if w.embedders, err = embedders(options, settings); err != nil {
		return wiring{}, err
	}
	builtIn := []tool.Tool{
		tool.NewFetchResult(activities.Results{Store: w.store}),
		activities.NewRemember(activities.Remembering{Store: w.store, Memory: w.memory, MemoryPolicy: w.policy, Log: log.Named("activities")}),
	}
	if w.tools, err = tool.NewRegistry(append(builtIn, options.Tools...)...); err != nil {
		return wiring{}, err
	}
	if w.policies, err = loadPolicies(options, settings); err != nil {
		return wiring{}, err
	}
	if w.approvals, err = approval.NewVerifier(settings.Approval.PublicKeys...); err != nil {
		return wiring{}, fmt.Errorf("FAIRLEAD_APPROVAL_PUBLIC_KEYS: %w", err)
	}
	return w, w.check()
}

func loadPolicies(options Options, settings config.Config) (*authz.Policies, error) {
	source := options.Policies
	if settings.Policies != "" {
		source = os.DirFS(settings.Policies)
	}
	if source == nil {
		return authz.Default(), nil
	}
	policies, err := authz.Load(source)
	if err != nil {
		return nil, &config.Error{Key: "policies", Problem: err.Error()}
	}
	return policies, nil
}

func (w wiring) check() error {
	var errs []error
	for _, d := range w.definitions.All() {
		if missing := w.tools.Missing(d.Tools); len(missing) > 0 {
			errs = append(errs, fmt.Errorf("agent %s %s lists tools that this worker does not have: %s", d.Name, d.Version, strings.Join(missing, ", ")))
		}
		for _, name := range d.Tools {
			if spec, _ := w.tools.Spec(name); spec.Risk == tool.Write && len(w.approvals.Keys()) == 0 {
				errs = append(errs, fmt.Errorf("agent %s %s lists %s, which writes, and nobody could confirm it here: set FAIRLEAD_APPROVAL_PUBLIC_KEYS to the public keys of the programs that approve (starter approval-key makes a pair)", d.Name, d.Version, name))
			}
		}
		if _, _, err := w.models.Resolve(d.Model); err != nil {
			errs = append(errs, fmt.Errorf("agent %s %s: %w", d.Name, d.Version, err))
		}
		errs = append(errs, w.checkMemory(d))
	}
	return errors.Join(errs...)
}

func loadCatalogue(options Options, settings config.Config) (model.Catalogue, error) {
	switch {
	case options.Catalogue != nil:
		return *options.Catalogue, nil
	case settings.Catalogue == "":
		return model.DefaultCatalogue(), nil
	}
	text, err := os.ReadFile(settings.Catalogue)
	if err != nil {
		return model.Catalogue{}, &config.Error{Key: "catalogue", Problem: err.Error()}
	}
	catalogue, err := model.ParseCatalogue(text)
	if err != nil {
		return model.Catalogue{}, &config.Error{Key: "catalogue", Problem: fmt.Sprintf("%s: %v", settings.Catalogue, err)}
	}
	return catalogue, nil
}

func loadDefinitions(options Options, settings config.Config) (*definition.Set, error) {
	all := options.Definitions
	if settings.Definitions != "" {
		loaded, err := definition.LoadDir(settings.Definitions)
		if err != nil {
			return nil, &config.Error{Key: "definitions", Problem: err.Error()}
		}
		all = append(loaded.All(), all...)
	}
	if len(all) == 0 {
		return nil, &config.Error{Key: "definitions", Problem: "this worker has no agent definition; name a directory of them"}
	}
	return definition.NewSet(all...)
}

// findModel finds a model by its catalogue name, or by PROVIDER:NAME if the
// catalogue lists that one: its price and window are known then.
func findModel(name string, catalogue model.Catalogue) (model.Entry, bool) {
	if entry, ok := catalogue.Lookup(name); ok {
		return entry, true
	}
	for _, listed := range catalogue.Names() {
		if entry, _ := catalogue.Lookup(listed); entry.Provider+":"+entry.Model == name {
			return entry, true
		}
	}
	return model.Entry{}, false
}

var notInVersion = regexp.MustCompile(`[^A-Za-z0-9._:@-]+`)

// override puts every agent on one model. As the content is another one, so is
// the version: "1@gpt-4o-mini" for version 1 on gpt-4o-mini. Older versions of
// an agent are not served then, because such versions have no order.
func override(name string, catalogue model.Catalogue, definitions *definition.Set) (model.Catalogue, *definition.Set, error) {
	if entry, listed := findModel(name, catalogue); listed {
		name = entry.Name
	} else {
		entry, err := model.AdHoc(name)
		if err == nil {
			catalogue, err = catalogue.With(entry)
		}
		if err != nil {
			return catalogue, nil, &config.Error{Key: "model", Problem: fmt.Sprintf("%v; the catalogue lists %s", err, strings.Join(catalogue.Names(), ", "))}
		}
	}
	var changed []definition.Definition
	for _, agentName := range definitions.Names() {
		d, _ := definitions.Lookup(agentName, "")
		if d.Model != name {
			d.Model, d.Version = name, overriddenVersion(d.Version, name)
		}
		changed = append(changed, d)
	}
	set, err := definition.NewSet(changed...)
	return catalogue, set, err
}

func overriddenVersion(version, modelName string) string {
	version += "@" + notInVersion.ReplaceAllString(modelName, "-")
	if len(version) > 100 {
		version = version[:100] // ASCII by the pattern
	}
	return version
}

func adapters(options Options, settings config.Config) (map[string]model.Model, error) {
	all := map[string]model.Model{}
	if settings.OpenAI.Configured() {
		adapter, err := openai.New(openai.Options{APIKey: settings.OpenAI.APIKey.Value(), BaseURL: settings.OpenAI.BaseURL})
		if err != nil {
			return nil, fmt.Errorf("OPENAI_BASE_URL: %w", err)
		}
		all[providerOpenAI] = adapter
	}
	maps.Copy(all, options.Models)
	return all, nil
}
