package memorypolicy

import "github.com/fairlead/fairlead/memorypolicy/detect"

// DefaultText is the text of the default policy.
func DefaultText() string { return string(defaultText) }

// FindFunc is a detector in one function.
type FindFunc func(texts ...string) []detect.Finding

// Find calls f.
func (f FindFunc) Find(texts ...string) []detect.Finding { return f(texts...) }

// WithDetector returns p with another detector.
func (p *Policy) WithDetector(f FindFunc) *Policy {
	other := *p
	other.detector = f
	return &other
}
