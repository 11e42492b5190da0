package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/tool/schema"
)

// Registry holds the tools of a worker. It never changes after NewRegistry and
// is safe for concurrent use.
type Registry struct {
	// entries is sorted by name.
	entries []*entry
}

type entry struct {
	tool Tool
	// writer is nil for reads, finder also for writers without a look-up.
	writer    Writer
	finder    Finder
	spec      Spec
	arguments *schema.Schema
	// places is the per-process quota, lookUps that of Find.
	places, lookUps chan struct{}
}

func newEntry(t Tool, spec Spec, arguments *schema.Schema) *entry {
	e := &entry{
		tool: t, spec: spec, arguments: arguments,
		places:  make(chan struct{}, spec.MaxConcurrent),
		lookUps: make(chan struct{}, spec.MaxConcurrent),
	}
	if spec.Risk == Write {
		e.writer, _ = t.(Writer)
		e.finder, _ = t.(Finder)
	}
	return e
}

// NewRegistry validates and compiles every tool's Spec, which is read once. The
// error names every tool at fault and what to do about it.
func NewRegistry(tools ...Tool) (*Registry, error) {
	r := &Registry{}
	seen := map[string]bool{}
	var errs []error
	for i, t := range tools {
		if t == nil {
			errs = append(errs, fmt.Errorf("tool %d is nil", i))
			continue
		}
		declared := t.Spec()
		spec, arguments, err := declared.complete()
		if err == nil {
			err = spec.implementedBy(t)
		}
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("tool %q: %w", declared.Name, err))
			continue
		case seen[spec.Name]:
			errs = append(errs, fmt.Errorf("tool %q: the name is taken", spec.Name))
			continue
		}
		seen[spec.Name] = true
		r.entries = append(r.entries, newEntry(t, spec, arguments))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	slices.SortFunc(r.entries, func(a, b *entry) int { return strings.Compare(a.spec.Name, b.spec.Name) })
	return r, nil
}

// Missing returns the names of allow that no registered tool has, so that a
// worker can refuse a definition when it starts instead of in the first run.
func (r *Registry) Missing(allow []string) []string {
	var missing []string
	for _, name := range allow {
		if r.named(name) == nil {
			missing = append(missing, name)
		}
	}
	return missing
}

// Spec returns the declaration of a registered tool, defaults filled in, whether
// or not it is offered to anybody. The caller may change what it gets.
func (r *Registry) Spec(name string) (Spec, bool) {
	e := r.named(name)
	if e == nil {
		return Spec{}, false
	}
	return e.spec.clone(), true
}

// named returns a registered tool whoever asks, or nil.
func (r *Registry) named(name string) *entry {
	for _, e := range r.entries {
		if e.spec.Name == name {
			return e
		}
	}
	return nil
}

// Offer returns the smallest set of tools for actor, defaults filled in: those
// on the allow-list that its environment, page and flags admit. The set is
// sorted by name, so that equal sets give byte-equal prompts. The caller may
// change what it gets.
//
// Reads and writes are offered alike; whoever has a policy leaves out what it
// does not admit. Offering is not authorization: Execute, Prepare and Commit
// decide anew.
func (r *Registry) Offer(actor Actor, allow []string) []Spec {
	offered := r.offered(actor, allow)
	specs := make([]Spec, len(offered))
	for i, e := range offered {
		specs[i] = e.spec.clone()
	}
	return specs
}

func (r *Registry) offered(actor Actor, allow []string) []*entry {
	var offered []*entry
	for _, e := range r.entries {
		if slices.Contains(allow, e.spec.Name) && e.spec.offeredTo(actor) {
			offered = append(offered, e)
		}
	}
	return offered
}

// Checked is a call that fits: its tool is offered and its arguments satisfy
// the schema.
type Checked struct {
	// Spec is empty when the tool is unknown.
	Spec Spec
	// Arguments are canonical JSON, nil when there is no canonical form.
	Arguments json.RawMessage
	// Hash is that of Arguments, or of the raw text when there are none. It is
	// set for refused calls as well.
	Hash string
}

// Check tells whether a call that the model proposes can be executed, or
// prepared if it is a write, without doing either. A refusal is an *Error for
// the model, ToolUnknown or ToolInvalidArguments, written so that it can correct
// itself; it repeats neither the name nor a value that the model wrote.
func (r *Registry) Check(actor Actor, allow []string, name, rawArguments string) (Checked, *Error) {
	checked := Checked{Hash: Hash([]byte(rawArguments))}
	canonical, malformed := Canonical(rawArguments, MaxArgumentBytes)
	if malformed == nil {
		checked.Arguments, checked.Hash = canonical, Hash(canonical)
	}
	e, refused := r.find(actor, allow, name)
	if refused != nil {
		return checked, refused
	}
	checked.Spec = e.spec.clone()
	if malformed != nil {
		return checked, &Error{Code: agent.ToolInvalidArguments, Message: "the arguments cannot be read: " + malformed.Error()}
	}
	if err := e.fits(canonical); err != nil {
		return checked, &Error{Code: agent.ToolInvalidArguments, Message: "the arguments do not fit: " + err.Error()}
	}
	return checked, nil
}

// maxNamesListed bounds what an unknown name is answered with.
const maxNamesListed = 20

// find compares byte for byte: no folding, trimming or normalization.
func (r *Registry) find(actor Actor, allow []string, name string) (*entry, *Error) {
	offered := r.offered(actor, allow)
	names := make([]string, 0, len(offered))
	for _, e := range offered {
		if e.spec.Name == name {
			return e, nil
		}
		names = append(names, e.spec.Name)
	}
	message := "there is no tool of this name, and no tool is available"
	if len(names) > 0 {
		message = "there is no tool of this name; available: " + strings.Join(names[:min(len(names), maxNamesListed)], ", ")
	}
	if more := len(names) - maxNamesListed; more > 0 {
		message += fmt.Sprintf(" and %d more", more)
	}
	return nil, &Error{Code: agent.ToolUnknown, Message: message}
}

func (e *entry) fits(canonical json.RawMessage) error {
	value, err := schema.Parse(string(canonical), MaxArgumentBytes)
	if err != nil {
		return err
	}
	return e.arguments.Validate(value)
}
