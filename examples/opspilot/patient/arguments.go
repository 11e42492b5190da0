package patient

import (
	"flag"
	"fmt"
	"strconv"
	"time"
)

// Flags declares the command line of payment-api and sets c to its defaults.
func (c *Config) Flags(flags *flag.FlagSet) {
	flags.StringVar(&c.Name, "name", "payment-api", "name of the service")
	flags.StringVar(&c.Environment, "env", "production", "environment of the service")
	flags.StringVar(&c.Address, "addr", "127.0.0.1:0", "loopback `host:port`; port 0 takes a free one")
	flags.StringVar(&c.RegistryDir, "registry", "", "`directory` of the service registry (required)")
	flags.StringVar(&c.LogPath, "log", "", "log `file`, appended to (required)")
	flags.IntVar(&c.PoolSize, "pool-size", defaultPoolSize, "connections to the bank")
	flags.BoolVar(&c.Leak, "leak", true, "lose a connection whenever the bank does not answer in time")
	flags.DurationVar(&c.BankTimeout, "bank-timeout", defaultBankTimeout, "how long the service waits for the bank")
	flags.Func("incident-until", "RFC 3339 `time` until which the bank leaves every third charge unanswered (default: none)", func(text string) (err error) {
		c.IncidentUntil, err = time.Parse(time.RFC3339Nano, text)
		return err
	})
	flags.StringVar(&c.IncidentFile, "incident-file", "", "`file` whose removal ends that earlier")
	flags.IntVar(&c.TrafficPerSecond, "traffic", 0, "payments a second that the service makes to itself")
	flags.DurationVar(&c.TrafficFor, "traffic-for", 30*time.Second, "how long it does so")
	flags.DurationVar(&c.MaxAge, "max-age", defaultMaxAge, "after this time the service ends by itself")
}

// arguments is the command line that Flags reads as c. Zero values that have a
// default are left out.
func (c Config) arguments() []string {
	arguments := []string{"--leak=" + strconv.FormatBool(c.Leak)}
	add := func(flag string, value any, isSet bool) {
		if isSet {
			arguments = append(arguments, fmt.Sprintf("--%s=%v", flag, value))
		}
	}
	add("name", c.Name, true)
	add("env", c.Environment, true)
	add("addr", c.Address, c.Address != "")
	add("registry", c.RegistryDir, true)
	add("log", c.LogPath, true)
	add("pool-size", c.PoolSize, c.PoolSize != 0)
	add("bank-timeout", c.BankTimeout, c.BankTimeout != 0)
	add("incident-until", c.IncidentUntil.UTC().Format(time.RFC3339Nano), !c.IncidentUntil.IsZero())
	add("incident-file", c.IncidentFile, c.IncidentFile != "")
	add("traffic", c.TrafficPerSecond, true)
	add("traffic-for", c.TrafficFor, c.TrafficFor != 0)
	add("max-age", c.MaxAge, c.MaxAge != 0)
	return arguments
}
