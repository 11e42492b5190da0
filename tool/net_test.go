package tool

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestPublicAddress(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]bool{
		"1.1.1.1": true, "8.8.8.8": true, "93.184.216.34": true, "100.63.255.255": true, "100.128.0.0": true,
		"172.15.255.255": true, "172.32.0.0": true, "198.17.255.255": true, "198.20.0.0": true, "223.255.255.255": true, "168.63.129.17": true,
		"2606:4700:4700::1111": true, "2001:4860:4860::8888": true, "2003::1": true, "2a00:1450::1": true,

		"0.0.0.0": false, "0.1.2.3": false, "10.0.0.1": false, "10.255.255.255": false, "127.0.0.1": false, "127.1.2.3": false,
		"100.64.0.0": false, "100.127.255.255": false, "100.100.100.200": false, "169.254.169.254": false, "169.254.0.1": false,
		"172.16.0.1": false, "172.31.255.255": false, "192.168.0.1": false, "192.0.0.192": false, "192.0.2.1": false, "192.88.99.1": false,
		"198.18.0.1": false, "198.19.255.255": false, "198.51.100.1": false, "203.0.113.1": false, "224.0.0.1": false, "239.255.255.255": false,
		"240.0.0.1": false, "255.255.255.255": false, "168.63.129.16": false,

		"::": false, "::1": false, "::ffff:127.0.0.1": false, "::ffff:8.8.8.8": false, "::ffff:169.254.169.254": false, "::8.8.8.8": false,
		"64:ff9b::7f00:1": false, "64:ff9b::808:808": false, "64:ff9b:1::1": false, "100::1": false, "2001::1": false, "2001:db8::1": false,
		"2002:7f00:1::": false, "3fff::1": false, "5f00::1": false, "fc00::1": false, "fd00:ec2::254": false, "fdff::1": false,
		"fe80::1": false, "fe80::1%eth0": false, "2606:4700::1%eth0": false, "fec0::1": false, "ff02::1": false,
	} {
		if got := PublicAddress(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: got %t, want %t", addr, got, want)
		}
	}
	if PublicAddress(netip.Addr{}) {
		t.Error("the zero address is public")
	}
}

func TestPublicHTTPClientRefusesLoopback(t *testing.T) {
	t.Parallel()
	reached := false
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer server.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(server.URL, "http://"), ":")
	client := NewPublicHTTPClient(5 * time.Second)
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]", "2130706433", "0x7f000001"} {
		response, err := client.Get("http://" + host + ":" + port)
		if err == nil {
			_ = response.Body.Close()
			t.Errorf("%s was reached", host)
		}
		// The last two are names to Go, and name servers may know no answer.
		if !strings.HasPrefix(host, "2") && !strings.HasPrefix(host, "0x") && !errors.Is(err, ErrAddressRefused) {
			t.Errorf("%s: got %v", host, err)
		}
	}
	if reached {
		t.Error("a request arrived")
	}
}

// The clients here may reach 127.0.0.1 and no other address.
func loopbackClient() *http.Client {
	return newHTTPClient(5*time.Second, func(addr netip.Addr) bool { return addr == netip.MustParseAddr("127.0.0.1") })
}

func TestHTTPClientChecksRedirects(t *testing.T) {
	t.Parallel()
	var server *httptest.Server
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("/inside", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, strings.Replace(server.URL, "127.0.0.1", "127.0.0.2", 1)+"/ok", http.StatusFound)
	})
	mux.HandleFunc("/hop/{n}", func(w http.ResponseWriter, r *http.Request) {
		var n int
		_, _ = fmt.Sscan(r.PathValue("n"), &n)
		if n == 0 {
			http.Redirect(w, r, "/ok", http.StatusFound)
			return
		}
		http.Redirect(w, r, fmt.Sprintf("/hop/%d", n-1), http.StatusFound)
	})
	server = httptest.NewServer(mux)
	defer server.Close()
	for path, want := range map[string]string{
		"/ok": "", "/hop/4": "", "/hop/5": "more than 5 redirects", "/inside": "address is not public: 127.0.0.2",
	} {
		response, err := loopbackClient().Get(server.URL + path)
		if err == nil {
			_ = response.Body.Close()
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
}

func TestHTTPClientRefusesDowngrade(t *testing.T) {
	t.Parallel()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	secure := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusFound))
	defer secure.Close()
	client := loopbackClient()
	transport, _ := client.Transport.(*http.Transport)
	trusting, _ := secure.Client().Transport.(*http.Transport)
	transport.TLSClientConfig = trusting.TLSClientConfig
	response, err := client.Get(secure.URL)
	if err == nil {
		_ = response.Body.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "https to http refused") {
		t.Errorf("got %v", err)
	}
}

func TestHTTPClientIgnoresProxies(t *testing.T) {
	reached := false
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer proxy.Close()
	t.Setenv("HTTP_PROXY", proxy.URL)
	client := NewPublicHTTPClient(time.Second)
	if response, err := client.Get("http://10.0.0.1/"); err == nil {
		_ = response.Body.Close()
		t.Error("a private address was reached")
	}
	if reached {
		t.Error("the proxy of the environment was used")
	}
}
