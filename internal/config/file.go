package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/viper"
)

// readFile merges the configuration file into v and returns its name, empty if
// there is none.
func readFile(v *viper.Viper, named string) (string, error) {
	name := named
	if name == "" {
		name = DefaultFile
	}
	if _, err := os.Stat(name); err != nil {
		if named == "" && errors.Is(err, fs.ErrNotExist) {
			return "", nil
		}
		return "", fmt.Errorf("configuration file %s: %w", name, withoutPath(err))
	}
	read := viper.New()
	read.SetConfigFile(name)
	read.SetConfigType("yaml")
	if err := read.ReadInConfig(); err != nil {
		return "", fmt.Errorf("configuration file %s: %w", name, withoutPath(err))
	}
	if err := checkFile(name, read); err != nil {
		return "", err
	}
	return name, v.MergeConfigMap(read.AllSettings())
}

// checkFile refuses secrets before unknown keys, because a key that looks like a
// secret needs another answer than a misspelt one. Values are never printed.
func checkFile(name string, read *viper.Viper) error {
	known := Keys()
	keys := read.AllKeys()
	slices.Sort(keys)
	for _, key := range keys {
		if looksSecret(key) && plainKey(key) != plainKey(keyEncryptionKeyURI) {
			return fmt.Errorf("configuration file %s: key %q looks like a secret; secrets are read from the environment only, take it out of the file", name, key)
		}
	}
	for _, key := range keys {
		for _, only := range []string{keyApprovalPublicKeys, keyEncryptionKeyURI} {
			if plainKey(key) == plainKey(only) {
				return fmt.Errorf("configuration file %s: %q is read from the environment only, take it out of the file and set %s", name, key, Variable(only))
			}
		}
		if !slices.Contains(known, key) {
			return fmt.Errorf("configuration file %s: unknown key %q; the keys are %s", name, key, strings.Join(known, ", "))
		}
		if holdsPassword(read.GetString(key)) {
			return fmt.Errorf("configuration file %s: the URL in %q holds a password; secrets are read from the environment only, set %s instead", name, key, Variable(key))
		}
	}
	return nil
}

func holdsPassword(value string) bool {
	u, err := url.Parse(value)
	if err != nil {
		// Something like a URL that does not parse may still hold one.
		return strings.Contains(value, "://") && strings.Contains(value, "@")
	}
	if _, set := u.User.Password(); set {
		return true
	}
	for key := range u.Query() {
		if looksSecret(key) {
			return true
		}
	}
	return false
}

// looksSecret matches names of secrets, however they are joined: api_key,
// apiKey, API-KEY. "tokens" alone is a count here and everywhere in fairlead.
func looksSecret(key string) bool {
	plain := plainKey(key)
	for _, word := range []string{"apikey", "approvalkey", "encryptionkey", "codectoken", "password", "passwd", "passphrase", "secret", "accesstoken", "authtoken", "bearer", "credential", "privatekey"} {
		if strings.Contains(plain, word) {
			return true
		}
	}
	return false
}

// plainKey is a key without case and joints.
func plainKey(key string) string {
	return strings.NewReplacer("_", "", "-", "", ".", "", " ", "").Replace(strings.ToLower(key))
}

// strict turns off the conversions that would hide a mistake: 2.5 as the whole
// number 2, and a bare 20 as twenty nanoseconds.
func strict(c *mapstructure.DecoderConfig) {
	c.WeaklyTypedInput = false
	c.DecodeHook = mapstructure.DecodeHookFuncType(convert)
}

func convert(from, to reflect.Type, value any) (any, error) {
	text, isText := value.(string)
	switch {
	case to == reflect.TypeFor[Interval]() && text == Off:
		return Interval(0), nil
	case to == reflect.TypeFor[time.Duration](), to == reflect.TypeFor[Interval]():
		if !isText {
			return nil, errors.New("must be a duration with a unit, such as 20s")
		}
		d, err := time.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("%q is not a duration such as 20s or 2m", text)
		}
		return d, nil
	case to.Kind() == reflect.Int || to.Kind() == reflect.Int64:
		if isText {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%q is not a whole number", text)
			}
			return n, nil
		}
		if from.Kind() == reflect.Float32 || from.Kind() == reflect.Float64 {
			return nil, fmt.Errorf("%v is not a whole number", value)
		}
	case to.Kind() == reflect.String && !isText:
		return nil, errors.New("must be text; put it into quotes")
	}
	return value, nil
}

// decodeError keeps what the decoder says about the keys at fault and drops its
// headline, which speaks of Go types.
func decodeError(err error) error {
	text := strings.Join(strings.Fields(strings.ReplaceAll(err.Error(), "\n", " ")), " ")
	if _, after, found := strings.Cut(text, "error decoding "); found {
		return fmt.Errorf("configuration: %s", after)
	}
	return fmt.Errorf("configuration: %s", text)
}

// withoutPath drops the path that the caller prints already.
func withoutPath(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
