package tool

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// ErrAddressRefused is wrapped when a connection would leave the public
// Internet. The text around it names the address: it is for logs, not for the
// model.
var ErrAddressRefused = errors.New("address is not public")

const maxRedirects = 5

// NewPublicHTTPClient returns a client for tools that follow addresses which
// others may have chosen (TOOL-4). Every connection, redirects included, is
// checked at the moment when it is made, on the resolved address that is being
// dialed: a name cannot resolve to something else in between. Addresses that
// PublicAddress refuses give ErrAddressRefused. Proxies of the environment are
// not used, at most 5 redirects are followed, and none from https to http.
//
// Timeout bounds a request, its body included, and must be positive.
func NewPublicHTTPClient(timeout time.Duration) *http.Client {
	return newHTTPClient(timeout, PublicAddress)
}

func newHTTPClient(timeout time.Duration, allowed func(netip.Addr) bool) *http.Client {
	if timeout <= 0 {
		panic("tool: NewPublicHTTPClient needs a positive timeout")
	}
	dialer := &net.Dialer{
		Timeout: min(timeout, 10*time.Second),
		Control: func(network, address string, _ syscall.RawConn) error {
			target, err := netip.ParseAddrPort(address)
			if err != nil || network != "tcp4" && network != "tcp6" {
				return fmt.Errorf("%w: %s %s", ErrAddressRefused, network, address)
			}
			if !allowed(target.Addr()) {
				return fmt.Errorf("%w: %s", ErrAddressRefused, target.Addr())
			}
			return nil
		},
	}
	return &http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			Proxy:                  nil,
			DialContext:            dialer.DialContext,
			ForceAttemptHTTP2:      true,
			TLSHandshakeTimeout:    10 * time.Second,
			MaxIdleConns:           32,
			IdleConnTimeout:        30 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(next *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return fmt.Errorf("more than %d redirects", maxRedirects)
			}
			if via[len(via)-1].URL.Scheme == "https" && next.URL.Scheme != "https" {
				return errors.New("redirect from https to http refused")
			}
			return nil
		},
	}
}

// notPublic are the ranges inside the global unicast space that are not plain
// hosts of the Internet (IANA special-purpose registries), or that carry
// another address inside.
var notPublic = prefixes(
	"0.0.0.0/8",        // this network
	"10.0.0.0/8",       // private
	"100.64.0.0/10",    // carrier-grade NAT; metadata of Alibaba Cloud
	"127.0.0.0/8",      // loopback
	"168.63.129.16/32", // platform service of Azure, a public address
	"169.254.0.0/16",   // link-local; metadata of most clouds
	"172.16.0.0/12",    // private
	"192.0.0.0/24",     // protocol assignments; metadata of Oracle Cloud
	"192.0.2.0/24",     // documentation
	"192.88.99.0/24",   // 6to4 relays
	"192.168.0.0/16",   // private
	"198.18.0.0/15",    // benchmarks
	"198.51.100.0/24",  // documentation
	"203.0.113.0/24",   // documentation
	"224.0.0.0/4",      // multicast
	"240.0.0.0/4",      // reserved, broadcast
	"2001::/23",        // protocol assignments; Teredo carries IPv4
	"2001:db8::/32",    // documentation
	"2002::/16",        // 6to4 carries IPv4
	"3fff::/20",        // documentation
)

// publicV6 is the only part of IPv6 that is assigned to hosts. Loopback,
// mapped IPv4, NAT64, unique local, link-local and multicast lie outside.
var publicV6 = netip.MustParsePrefix("2000::/3")

// PublicAddress reports whether addr is a plain host of the public Internet. It
// refuses loopback, unspecified, private, link-local, carrier-grade NAT,
// multicast, documentation and reserved addresses, cloud metadata services,
// zones, and IPv6 forms that carry an IPv4 address.
func PublicAddress(addr netip.Addr) bool {
	if !addr.IsValid() || addr.Zone() != "" {
		return false
	}
	if addr.Is6() && !publicV6.Contains(addr) {
		return false
	}
	for _, prefix := range notPublic {
		if prefix.Contains(addr) {
			return false
		}
	}
	return true
}

func prefixes(texts ...string) []netip.Prefix {
	parsed := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		parsed[i] = netip.MustParsePrefix(text)
	}
	return parsed
}
