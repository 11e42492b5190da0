package codec_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestLogin(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	text := body(t, payload(t, d.converter, request))
	page := d.send(t, "GET", "/login", "")
	if page.StatusCode != 200 || !strings.Contains(page.text, `type="password"`) || !strings.Contains(page.Header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Fatalf("%d %v %s", page.StatusCode, page.Header, page.text)
	}
	form := []string{"Content-Type", "application/x-www-form-urlencoded"}
	enter := func(token string, headers ...string) reply {
		return d.send(t, "POST", "/login", url.Values{"token": {token}}.Encode(), append(form, headers...)...)
	}
	if answer := enter("wrong" + olga.Token.Value()); answer.StatusCode != 401 || len(answer.Cookies()) != 0 || strings.Contains(answer.text, "wrongolga") {
		t.Errorf("%d %v %s", answer.StatusCode, answer.Cookies(), answer.text)
	}
	if answer := enter(olga.Token.Value(), "Origin", "https://evil.example.org"); answer.StatusCode != 403 || len(answer.Cookies()) != 0 {
		t.Errorf("another page logs a browser in: %d", answer.StatusCode)
	}
	if answer := enter(strings.Repeat("x", 9<<10)); answer.StatusCode != 401 {
		t.Errorf("a large form: %d", answer.StatusCode)
	}
	answer := enter(olga.Token.Value(), "Origin", d.URL, "Sec-Fetch-Site", "same-origin")
	if answer.StatusCode != 200 || !strings.Contains(answer.text, "olga") || strings.Contains(answer.text, olga.Token.Value()) || len(answer.Cookies()) != 2 {
		t.Fatalf("%d %v %s", answer.StatusCode, answer.Cookies(), answer.text)
	}
	for i, path := range []string{"/decode", "/encode"} {
		cookie := answer.Cookies()[i]
		if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != path || cookie.Secure || cookie.MaxAge != 8*3600 || strings.Contains(cookie.Value, "olga") {
			t.Errorf("%+v", cookie)
		}
	}
	if secure := enter(olga.Token.Value(), "X-Forwarded-Proto", "https"); !secure.Cookies()[0].Secure {
		t.Error("behind HTTPS the cookie is not secure")
	}

	cookie := "fairlead-codec=" + answer.Cookies()[0].Value
	if got := d.send(t, "POST", "/decode", text, "Origin", uiURL, "Cookie", cookie); got.StatusCode != 200 || !strings.Contains(string(got.payloads(t)[0].Data), canary) {
		t.Errorf("the Web UI: %d %s", got.StatusCode, got.text)
	}
	for name, headers := range map[string][]string{
		"no page":       {"Cookie", cookie},
		"another page":  {"Cookie", cookie, "Origin", "https://evil.example.org"},
		"a wrong token": {"Cookie", cookie, "Origin", uiURL, "Authorization", "Bearer x"},
		"another one":   {"Cookie", cookie + "x", "Origin", uiURL},
	} {
		if got := d.send(t, "POST", "/decode", text, headers...); got.StatusCode < 400 {
			t.Errorf("%s: %d", name, got.StatusCode)
		}
	}
	for _, want := range []string{`"logged in","operator":"olga"`, `"a login was refused"`} {
		if !strings.Contains(d.log.String(), want) {
			t.Errorf("the log lacks %s: %s", want, d.log)
		}
	}
	if strings.Contains(d.log.String(), olga.Token.Value()) || strings.Contains(d.log.String(), answer.Cookies()[0].Value) {
		t.Error("a secret was logged")
	}
}

func TestLogout(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	text := body(t, payload(t, d.converter, request))
	form := []string{"Content-Type", "application/x-www-form-urlencoded"}
	cookie := func() string {
		answer := d.send(t, "POST", "/login", url.Values{"token": {olga.Token.Value()}}.Encode(), form...)
		if answer.StatusCode != 200 || !strings.Contains(answer.text, `action="/decode/logout"`) {
			t.Fatalf("%d %s", answer.StatusCode, answer.text)
		}
		return "fairlead-codec=" + answer.Cookies()[0].Value
	}
	status := func(cookie string) int {
		return d.send(t, "POST", "/decode", text, "Origin", uiURL, "Cookie", cookie).StatusCode
	}
	// The page does not know who is logged in: the cookie is not sent to it.
	if page := d.send(t, "GET", "/login", ""); !strings.Contains(page.text, `action="/decode/logout"`) {
		t.Errorf("%s", page.text)
	}
	first, second := cookie(), cookie()
	if answer := d.send(t, "POST", "/decode/logout", "", append(form, "Origin", "https://evil.example.org", "Cookie", first)...); answer.StatusCode != 403 || status(first) != 200 {
		t.Errorf("another page logs a browser out: %d", answer.StatusCode)
	}
	if answer := d.send(t, "GET", "/decode/logout", "", "Cookie", first); answer.StatusCode != 405 || status(first) != 200 {
		t.Errorf("a link logs a browser out: %d", answer.StatusCode)
	}
	answer := d.send(t, "POST", "/decode/logout", "", append(form, "Origin", d.URL, "Sec-Fetch-Site", "same-origin", "Cookie", first)...)
	if answer.StatusCode != 303 || answer.Header.Get("Location") != "/login" || len(answer.Cookies()) != 2 {
		t.Fatalf("%d %v", answer.StatusCode, answer.Header)
	}
	for i, path := range []string{"/decode", "/encode"} {
		if cookie := answer.Cookies()[i]; cookie.Name != "fairlead-codec" || cookie.Path != path || cookie.MaxAge >= 0 || cookie.Value != "" {
			t.Errorf("%+v", cookie)
		}
	}
	if status(first) != 401 || status(second) != 200 {
		t.Errorf("after the logout: %d, another browser %d", status(first), status(second))
	}
	if !strings.Contains(d.log.String(), `"logged out","operator":"olga"`) {
		t.Errorf("logged %s", d.log)
	}
}
