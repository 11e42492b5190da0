package authz

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"strings"
	"sync"

	"github.com/cedar-policy/cedar-go"
)

// MaxFileBytes is the largest file of policies or entities that Load reads.
const MaxFileBytes = 1 << 20

// Policies are loaded policies and entities. They never change and are safe for
// concurrent use. The zero value allows nothing.
type Policies struct {
	policies policyList
	entities cedar.EntityMap
	digest   string
}

// policyList keeps policies in the order of their files, so that errors list
// them in a stable order.
type policyList []namedPolicy

type namedPolicy struct {
	id     cedar.PolicyID
	policy *cedar.Policy
}

// All is a cedar.PolicyIterator.
func (l policyList) All() iter.Seq2[cedar.PolicyID, *cedar.Policy] {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		for _, p := range l {
			if !yield(p.id, p.policy) {
				return
			}
		}
	}
}

//go:embed default.cedar
var defaultFiles embed.FS

var loadDefault = sync.OnceValue(func() *Policies {
	p, err := Load(defaultFiles)
	if err != nil {
		panic(fmt.Sprintf("authz: the embedded policies are broken: %v", err))
	}
	return p
})

// Default returns the policies of default.cedar. They know no groups.
func Default() *Policies { return loadDefault() }

// Load reads every file *.cedar in the root of fsys, and entities.json if it is
// there. Other files and folders are ignored. The policies stand alone: the
// default ones are not added.
//
// A policy's ID is its annotation @id, else "<file>#<n>", counted from 1. Load
// refuses what would silently never match: see checkPolicy. Errors name the file
// and, where it is known, the line.
func Load(fsys fs.FS) (*Policies, error) {
	names, err := fs.Glob(fsys, "*.cedar")
	if err != nil {
		return nil, fmt.Errorf("list policies: %w", err)
	}
	if len(names) == 0 {
		// Glob takes a directory that cannot be read for an empty one.
		if _, err := fs.ReadDir(fsys, "."); err != nil {
			return nil, fmt.Errorf("list policies: %w", err)
		}
		return nil, errors.New("load policies: the directory has no file *.cedar: put the policies into its root, or set no directory to get the default ones")
	}
	p := &Policies{}
	sum := sha256.New()
	document, err := readFile(fsys, entitiesFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("load policies: %w", err)
	default:
		hashFile(sum, entitiesFile, document)
		if p.entities, err = parseEntities(document); err != nil {
			return nil, fmt.Errorf("load policies: %w", err)
		}
	}
	checker := newChecker(p.entities)
	seen := map[cedar.PolicyID]bool{}
	// Glob returns the names of one directory in their order.
	for _, name := range names {
		document, err := readFile(fsys, name)
		if err != nil {
			return nil, fmt.Errorf("load policies: %w", err)
		}
		hashFile(sum, name, document)
		policies, err := parsePolicies(name, document)
		if err != nil {
			return nil, fmt.Errorf("load policies: %w", err)
		}
		for _, named := range policies {
			line := named.policy.Position().Line
			if seen[named.id] {
				return nil, fmt.Errorf("load policies: %s:%d: the ID %q is taken: give this policy another @id", name, line, named.id)
			}
			seen[named.id] = true
			if err := checker.checkPolicy(named.policy); err != nil {
				return nil, fmt.Errorf("load policies: %s:%d: policy %q: %w", name, line, named.id, err)
			}
		}
		p.policies = append(p.policies, policies...)
	}
	if len(p.policies) == 0 {
		return nil, fmt.Errorf("load policies: there is no policy in %s, which would forbid everything: write one, or set no directory to get the default ones", strings.Join(names, ", "))
	}
	p.digest = hex.EncodeToString(sum.Sum(nil))
	return p, nil
}

// Digest is the SHA-256 in hex of names and bytes of all files that Load read.
func (p *Policies) Digest() string {
	if p == nil {
		return ""
	}
	return p.digest
}

func parsePolicies(name string, document []byte) ([]namedPolicy, error) {
	parsed, err := cedar.NewPolicyListFromBytes(name, document)
	if err != nil {
		// The parser knows no file name and writes a placeholder.
		text := strings.Replace(err.Error(), "<input>", name, 1)
		return nil, fmt.Errorf("%s: %s", name, text)
	}
	named := make([]namedPolicy, len(parsed))
	for i, policy := range parsed {
		id, annotated := policy.Annotations()["id"]
		switch {
		case !annotated:
			id = cedar.String(fmt.Sprintf("%s#%d", name, i+1))
		case id == "":
			return nil, fmt.Errorf("%s:%d: the annotation @id is empty", name, policy.Position().Line)
		}
		named[i] = namedPolicy{cedar.PolicyID(id), policy}
	}
	return named, nil
}

func readFile(fsys fs.FS, name string) ([]byte, error) {
	file, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	document, err := io.ReadAll(io.LimitReader(file, MaxFileBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", name, err)
	case len(document) > MaxFileBytes:
		return nil, fmt.Errorf("%s has more than %d bytes: split it", name, MaxFileBytes)
	}
	return document, nil
}

// hashFile writes lengths as well, so that no bytes can move from one file to
// another unnoticed.
func hashFile(w io.Writer, name string, document []byte) {
	fmt.Fprintf(w, "%d:%s%d:", len(name), name, len(document))
	_, _ = w.Write(document)
}
