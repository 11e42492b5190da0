package definition

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// Set is the definitions that a worker serves. It never changes after NewSet
// and is safe for concurrent use; what it returns is to be read only.
type Set struct {
	// versions are those of one name, oldest first.
	versions map[string][]Definition
}

// NewSet applies New to each definition and collects them. The same definition
// twice is one; the same name and version with other content is an error.
//
// Where a name has several versions the current one is the highest, compared
// number by number: 1.10 is higher than 1.9. Then all of them must be written as
// numbers separated by dots, and no two may be equal, as 1 and 1.0 are.
func NewSet(defs ...Definition) (*Set, error) {
	s := &Set{versions: map[string][]Definition{}}
	var errs []error
	for _, d := range defs {
		d, err := New(d)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if known, ok := s.exact(d.Name, d.Version); ok {
			if Digest(known) != Digest(d) {
				errs = append(errs, fmt.Errorf("agent %s has version %s twice with other content: give the changed one a new version", d.Name, d.Version))
			}
			continue
		}
		s.versions[d.Name] = append(s.versions[d.Name], d)
	}
	for _, name := range s.Names() {
		if err := order(s.versions[name]); err != nil {
			errs = append(errs, fmt.Errorf("agent %s: %w", name, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s, nil
}

// LoadDir is LoadFS on a directory of the operating system.
func LoadDir(dir string) (*Set, error) {
	return LoadFS(os.DirFS(dir))
}

// LoadFS reads every file directly in fsys whose name ends in .yaml or .yml as
// one definition. No such file is an error. Errors name the files.
func LoadFS(fsys fs.FS) (*Set, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, fmt.Errorf("load definitions: %w", err)
	}
	var defs []Definition
	var errs []error
	for _, entry := range entries {
		if ext := path.Ext(entry.Name()); entry.IsDir() || ext != ".yaml" && ext != ".yml" {
			continue
		}
		text, err := fs.ReadFile(fsys, entry.Name())
		if err != nil {
			errs = append(errs, err)
			continue
		}
		d, err := Parse(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", entry.Name(), err))
			continue
		}
		defs = append(defs, d)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("load definitions: %w", err)
	}
	if len(defs) == 0 {
		return nil, errors.New("load definitions: no file ends in .yaml or .yml")
	}
	return NewSet(defs...)
}

// Lookup returns the definition of that name and version; the empty version is
// the current one.
func (s *Set) Lookup(name, version string) (Definition, bool) {
	if version != "" {
		return s.exact(name, version)
	}
	versions := s.versions[name]
	if len(versions) == 0 {
		return Definition{}, false
	}
	return versions[len(versions)-1], true
}

// All returns every definition, by name and within a name oldest first.
func (s *Set) All() []Definition {
	var all []Definition
	for _, name := range s.Names() {
		all = append(all, s.versions[name]...)
	}
	return all
}

// Names returns the names of all agents, sorted.
func (s *Set) Names() []string {
	names := make([]string, 0, len(s.versions))
	for name := range s.versions {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (s *Set) exact(name, version string) (Definition, bool) {
	for _, d := range s.versions[name] {
		if d.Version == version {
			return d, true
		}
	}
	return Definition{}, false
}

// order sorts versions, or says why they have no order. A single version needs
// none and may be any text.
func order(versions []Definition) error {
	if len(versions) < 2 {
		return nil
	}
	for _, d := range versions {
		if _, ok := numbers(d.Version); !ok {
			return fmt.Errorf("which of its %d versions is current cannot be told, because %q is not numbers separated by dots", len(versions), d.Version)
		}
	}
	slices.SortFunc(versions, func(a, b Definition) int { return compareVersions(a.Version, b.Version) })
	for i := range len(versions) - 1 {
		if compareVersions(versions[i].Version, versions[i+1].Version) == 0 {
			return fmt.Errorf("versions %s and %s are the same number: remove one", versions[i].Version, versions[i+1].Version)
		}
	}
	return nil
}

// numbers splits a version such as 1.10 and drops what does not count: zeros in
// front of a number, and numbers at the end that are zero.
func numbers(version string) ([]string, bool) {
	parts := strings.Split(version, ".")
	for i, part := range parts {
		if part == "" || strings.Trim(part, "0123456789") != "" {
			return nil, false
		}
		parts[i] = strings.TrimLeft(part, "0")
	}
	for len(parts) > 0 && parts[len(parts)-1] == "" {
		parts = parts[:len(parts)-1]
	}
	return parts, true
}

func compareVersions(a, b string) int {
	left, _ := numbers(a)
	right, _ := numbers(b)
	return slices.CompareFunc(left, right, func(x, y string) int {
		// Without zeros in front the longer number is the greater.
		return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y))
	})
}
