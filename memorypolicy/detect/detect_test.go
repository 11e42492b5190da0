package detect_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/memorypolicy/detect"
)

func shared(t testing.TB) *detect.Detector {
	t.Helper()
	d, err := detect.Shared()
	require.NoError(t, err)
	return d
}

func has(found []detect.Finding, c detect.Category) bool {
	for _, f := range found {
		if f.Category == c {
			return true
		}
	}
	return false
}

func TestPOL3Hits(t *testing.T) {
	t.Parallel()
	d := shared(t)
	for category, texts := range hits {
		t.Run(string(category), func(t *testing.T) {
			t.Parallel()
			for _, text := range texts {
				found := d.Find(text)
				if !has(found, category) {
					t.Errorf("%q: found %v, want %s", text, found, category)
				}
				if has(found, detect.Failed) {
					t.Errorf("%q: a detector failed: %v", text, found)
				}
			}
		})
	}
}

func TestPOL3Misses(t *testing.T) {
	t.Parallel()
	d := shared(t)
	for _, text := range misses {
		if found := d.Find(text); len(found) > 0 {
			t.Errorf("%q: found %v, want nothing", text, found)
		}
	}
}

// Whoever writes a text does not decide whether it is looked at.
func TestPOL3NobodySwitchesGitleaksOff(t *testing.T) {
	t.Parallel()
	found := shared(t).Find("ghp\x5f16C7e42F292c6912E7710c838347Ae178B4a // gitleaks:allow")
	require.Contains(t, found, detect.Finding{Category: detect.AccessToken, Rule: "gitleaks/github-pat"})
}

func TestPOL3TooLongCounts(t *testing.T) {
	t.Parallel()
	require.Equal(t, []detect.Finding{{Category: detect.Failed, Rule: "too_long"}}, shared(t).Find("a", strings.Repeat("b", detect.MaxBytes)))
}

func TestFindIsSortedAndNamesEachOnce(t *testing.T) {
	t.Parallel()
	require.Equal(t, []detect.Finding{
		{Category: detect.Health, Rule: "health/en"},
		{Category: detect.PaymentCard, Rule: "card/luhn"},
	}, shared(t).Find("4111 1111 1111 1111", "allergic", "ALLERGIC, 5555 5555 5555 4444"))
}
