package config

import (
	"fmt"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
)

// Temporal says how to reach the Temporal server: a local one, a self-hosted
// cluster, or Temporal Cloud.
type Temporal struct {
	Address   string
	Namespace string
	// TLS and APIKey say whether they are in use.
	TLS    bool
	APIKey bool

	options client.Options
}

// Options returns the connection settings for the SDK, credentials included.
// The caller adds logger, metrics and identity.
func (t Temporal) Options() client.Options { return t.options }

func (t Temporal) redacted() Temporal {
	t.options = client.Options{}
	return t
}

// lookup makes a Source an envconfig.EnvLookup. A profile file may add settings
// for gRPC headers by prefix, which only the real environment can list.
type lookup struct{ source Source }

func (l lookup) LookupEnv(name string) (string, bool) {
	value := l.source.env(name)
	return value, value != ""
}

func (l lookup) Environ() []string {
	if l.source.LookupEnv != nil {
		return nil
	}
	return envconfig.EnvLookupOS.Environ()
}

// loadTemporal reads TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_API_KEY,
// TEMPORAL_TLS_*, TEMPORAL_PROFILE and the profile file that TEMPORAL_CONFIG_FILE
// names, as every Temporal program does.
func loadTemporal(source Source) (Temporal, error) {
	profile, err := envconfig.LoadClientConfigProfile(envconfig.LoadClientConfigProfileOptions{EnvLookup: lookup{source}})
	if err != nil {
		return Temporal{}, fmt.Errorf("configuration of the Temporal connection (TEMPORAL_*): %w", err)
	}
	if profile.Address == "" {
		profile.Address = "127.0.0.1:7233"
	}
	if profile.Namespace == "" {
		profile.Namespace = "default"
	}
	options, err := profile.ToClientOptions(envconfig.ToClientOptionsRequest{})
	if err != nil {
		return Temporal{}, fmt.Errorf("configuration of the Temporal connection (TEMPORAL_*): %w", err)
	}
	return Temporal{
		Address: profile.Address, Namespace: profile.Namespace,
		TLS: options.ConnectionOptions.TLS != nil, APIKey: profile.APIKey != "",
		options: options,
	}, nil
}
