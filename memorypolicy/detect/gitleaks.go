package detect

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/spf13/viper"
	"github.com/zricethezav/gitleaks/v8/config"
	"github.com/zricethezav/gitleaks/v8/detect"
	"github.com/zricethezav/gitleaks/v8/logging"
)

// decodeDepth is how often gitleaks decodes base64, hex, percent and Unicode
// escapes that it finds.
const decodeDepth = 2

// zerologDisabled is zerolog.Disabled. gitleaks writes what it finds to its log.
const zerologDisabled = 7

// leaks returns the rule that runs gitleaks with its default rules. The rules are
// read with a viper of their own: gitleaks' constructor would use the program's.
func leaks() (rule, error) {
	logging.Logger = logging.Logger.Level(zerologDisabled)
	v := viper.New()
	v.SetConfigType("toml")
	if err := v.ReadConfig(strings.NewReader(config.DefaultConfig)); err != nil {
		return rule{}, fmt.Errorf("read gitleaks' rules: %w", err)
	}
	var vc config.ViperConfig
	if err := v.Unmarshal(&vc); err != nil {
		return rule{}, fmt.Errorf("decode gitleaks' rules: %w", err)
	}
	cfg, err := vc.Translate()
	if err != nil {
		return rule{}, fmt.Errorf("translate gitleaks' rules: %w", err)
	}
	d := detect.NewDetector(cfg)
	d.MaxDecodeDepth = decodeDepth
	// Whoever writes a text does not decide whether it is looked at.
	d.IgnoreGitleaksAllow = true
	return rule{"gitleaks", func(t *text, add func(Category, string)) {
		for _, form := range t.forms {
			for _, f := range d.DetectString(form) {
				// The generic rule takes any word after "key" and a comma for a key.
				if f.RuleID != "generic-api-key" || hasDigit(f.Secret) {
					add(leakCategory(f.RuleID), "gitleaks/"+f.RuleID)
				}
			}
		}
	}}, nil
}

func leakCategory(id string) Category {
	if strings.Contains(id, "password") || strings.Contains(id, "private-key") || strings.Contains(id, "secret-key") {
		return Secret
	}
	return AccessToken
}

func hasDigit(s string) bool { return strings.IndexFunc(s, unicode.IsDigit) >= 0 }
