// Package detect finds what must not be remembered: secrets, numbers that name a
// person or an account, health and finance text, text that grants authority or
// speaks to the model, and text that says nothing or tells of one event only
// (POL-3). It is pure: no clock, no store, no network, and no content leaves it.
//
// It looks at a text in several forms, so that full-width letters, invisible
// characters, look-alikes, encodings and separators hide nothing. It is called by
// package memorypolicy, and may import pure libraries only.
package detect

import (
	"cmp"
	"slices"
	"sync"
)

// Category is what kind of text a finding is.
type Category string

// The closed set of categories.
const (
	// Secret is a password, PIN, passphrase, private key or recovery phrase.
	Secret Category = "secret"
	// AccessToken is an API key, bearer token or other credential of a program.
	AccessToken Category = "access_token"
	// PaymentCard is a card number with a brand's prefix and length and a right
	// check digit, or a number that is said to be one.
	PaymentCard Category = "payment_card"
	// IdentityNumber is a number by which a state or a bank knows a person.
	IdentityNumber Category = "identity_number"
	PhoneNumber    Category = "phone_number"
	Health         Category = "health"
	Finance        Category = "finance"
	// Authority grants a permission, or asks to skip confirmation, checks or
	// review, now or later.
	Authority Category = "authority"
	// Injection speaks to the model instead of saying something.
	Injection Category = "injection"
	// Chatter says nothing: thanks, greetings, "ok".
	Chatter Category = "chatter"
	// Event tells of one event in the past, and of no change in how things are.
	Event Category = "event"
	// Failed says that a detector could not do its work; it counts as a hit.
	Failed Category = "failed"
)

// Finding says that a rule found something of its category. It holds no content.
type Finding struct {
	Category Category
	// Rule is a stable ID.
	Rule string
}

// MaxBytes bounds the texts of one call together. No detector takes the square of
// it, see TestPatternsAreLinear: a pattern that is looked for again inside of what
// it found bounds all that it repeats. So it bounds the time too.
const MaxBytes = 256 << 10

// Detector finds. It is safe for concurrent use.
type Detector struct {
	rules []rule
}

// rule is one detector. It adds what it finds in any form of a text.
type rule struct {
	id   string
	find func(t *text, add func(Category, string))
}

var shared = sync.OnceValues(newDetector)

// Shared returns the detector, which is built at the first call. The error says
// that its rules cannot be read: nothing may be remembered then.
func Shared() (*Detector, error) { return shared() }

func newDetector() (*Detector, error) {
	gitleaks, err := leaks()
	if err != nil {
		return nil, err
	}
	return &Detector{rules: []rule{
		gitleaks, credentials, numbers, phrases("personal", personal), phrases("authority", authority), phrases("injection", injection), talk,
	}}, nil
}

// Find returns everything that is found in the texts, each category and rule
// once, in the order of category and rule. A detector that panics, and a call
// with more than MaxBytes, give a finding of category Failed.
func (d *Detector) Find(texts ...string) []Finding {
	var found []Finding
	size := 0
	for _, text := range texts {
		size += len(text)
	}
	if size > MaxBytes {
		return []Finding{{Failed, "too_long"}}
	}
	for _, text := range texts {
		found = append(found, d.findIn(text)...)
	}
	slices.SortFunc(found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Category, b.Category), cmp.Compare(a.Rule, b.Rule))
	})
	return slices.Compact(found)
}

func (d *Detector) findIn(raw string) (found []Finding) {
	defer func() {
		if recover() != nil {
			found = []Finding{{Failed, "forms"}}
		}
	}()
	t := textOf(raw)
	for _, r := range d.rules {
		found = append(found, run(r, t)...)
	}
	return found
}

// run keeps what a rule found before it panicked, and says that it did.
func run(r rule, t *text) (found []Finding) {
	defer func() {
		if recover() != nil {
			found = append(found, Finding{Failed, r.id})
		}
	}()
	r.find(t, func(c Category, id string) { found = append(found, Finding{c, id}) })
	return found
}
