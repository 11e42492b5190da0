package codec_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/codec"
	"github.com/fairlead/fairlead/internal/config"
)

const uiURL = "http://127.0.0.1:8233"

var (
	olga    = config.Operator{Name: "olga", Token: config.Secret(strings.Repeat("olga", 10))}
	support = config.Operator{Name: "support", Tenant: "acme", Token: config.Secret(strings.Repeat("acme", 10))}
	foreign = config.Operator{Name: "foreign", Tenant: "umbrella", Token: config.Secret(strings.Repeat("umbr", 10))}
)

// desk is a codec server with what it logged.
type desk struct {
	*httptest.Server
	source    *fakeSource
	converter converter.DataConverter
	log       *bytes.Buffer
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{source: newStore(t).program(), log: &bytes.Buffer{}}
	d.converter = codec.DataConverter(d.source)
	log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.Lock(zapcore.AddSync(d.log)), zap.DebugLevel))
	handler, err := codec.NewHandler(codec.ServerOptions{Source: d.source, Operators: []config.Operator{olga, support, foreign}, UIURL: uiURL + "/", Log: log})
	if err != nil {
		t.Fatal(err)
	}
	d.Server = httptest.NewServer(handler)
	t.Cleanup(d.Close)
	d.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return d
}

func body(t *testing.T, payloads ...*common.Payload) string {
	t.Helper()
	text, err := protojson.Marshal(&common.Payloads{Payloads: payloads})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// reply is an answer of the server.
type reply struct {
	*http.Response
	text string
}

func (r reply) payloads(t *testing.T) []*common.Payload {
	t.Helper()
	var list common.Payloads
	if err := protojson.Unmarshal([]byte(r.text), &list); err != nil {
		t.Fatalf("%v in %s", err, r.text)
	}
	return list.Payloads
}

func (d *desk) send(t *testing.T, method, path, text string, headers ...string) reply {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, d.URL+path, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := d.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{response, string(answer)}
}

// holds reports whether a text holds the canary, as it is or in base64.
func holds(text string) bool {
	for shift := range 3 {
		// The characters at the ends depend on what stands beside.
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + canary))
		if strings.Contains(text, encoded[4:len(encoded)-4]) {
			return true
		}
	}
	return strings.Contains(text, "canary")
}

func bearer(o config.Operator) []string {
	return []string{"Authorization", "Bearer " + o.Token.Value()}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	text := body(t, payload(t, d.converter, request), payload(t, d.converter, "step 1: look"), payload(t, d.converter, agent.RunResult{RunID: "run-1"}))
	answer := d.send(t, "POST", "/decode", text, bearer(olga)...)
	if answer.StatusCode != 200 || answer.Header.Get("Content-Type") != "application/json" || answer.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%d %v %s", answer.StatusCode, answer.Header, answer.text)
	}
	got := answer.payloads(t)
	if len(got) != 3 || !strings.Contains(string(got[0].Data), canary) || string(got[1].Data) != `"step 1: look"` || !strings.Contains(string(got[2].Data), "run-1") {
		t.Errorf("%v", got)
	}
	var line struct {
		Msg, Operation, Operator string
		Payloads                 int
		WithKeys                 int `json:"with_keys"`
		Tenants                  []string
	}
	if err := json.Unmarshal(d.log.Bytes(), &line); err != nil {
		t.Fatalf("%v in %s", err, d.log)
	}
	if line.Operation != "decode" || line.Operator != "olga" || line.Payloads != 3 || line.WithKeys != 2 || fmt.Sprint(line.Tenants) != "[(deployment) acme]" {
		t.Errorf("logged %s", d.log)
	}
	if holds(d.log.String()) {
		t.Errorf("content was logged: %s", d.log)
	}
}

func TestEncode(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	plain := payload(t, converter.GetDefaultDataConverter(), request)
	answer := d.send(t, "POST", "/encode", body(t, plain), bearer(olga)...)
	if answer.StatusCode != 200 || holds(answer.text) || holds(d.log.String()) {
		t.Fatalf("%d %s, logged %s", answer.StatusCode, answer.text, d.log)
	}
	var got agent.RunRequest
	if err := d.converter.FromPayload(answer.payloads(t)[0], &got); err != nil || got.Message != canary {
		t.Errorf("a worker reads %+v, %v", got, err)
	}
}

func TestNoEntry(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	text := body(t, payload(t, d.converter, request))
	token := olga.Token.Value()
	for name, headers := range map[string][]string{
		"nothing":         nil,
		"a wrong token":   {"Authorization", "Bearer " + strings.Repeat("x", 40)},
		"half a token":    {"Authorization", "Bearer " + token[:20]},
		"more":            {"Authorization", "Bearer " + token + "x"},
		"empty":           {"Authorization", "Bearer "},
		"another scheme":  {"Authorization", "Basic " + token},
		"no scheme":       {"Authorization", token},
		"the name":        {"Authorization", "Bearer olga"},
		"a cookie":        {"Origin", uiURL, "Cookie", "fairlead-codec=" + token},
		"an empty cookie": {"Origin", uiURL, "Cookie", "fairlead-codec="},
	} {
		for _, path := range []string{"/decode", "/encode"} {
			answer := d.send(t, "POST", path, text, headers...)
			if answer.StatusCode != 401 || holds(answer.text) || answer.Header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s at %s: %d %s", name, path, answer.StatusCode, answer.text)
			}
		}
	}
	if strings.Contains(d.log.String(), token[:20]) || strings.Contains(d.log.String(), "xxxx") || !strings.Contains(d.log.String(), "unauthorized") {
		t.Errorf("logged %s", d.log)
	}
}

func TestTenantRestriction(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	plain := converter.GetDefaultDataConverter()
	own, result := payload(t, d.converter, request), payload(t, d.converter, agent.RunResult{RunID: "run-1"})
	summary := payload(t, d.converter, "step 1: look")
	for name, test := range map[string]struct {
		operator config.Operator
		path     string
		payloads []*common.Payload
		status   int
	}{
		"its own":           {support, "/decode", []*common.Payload{own, summary}, 200},
		"another's":         {foreign, "/decode", []*common.Payload{own}, 200},
		"open ones":         {foreign, "/decode", []*common.Payload{summary, payload(t, plain, request)}, 200},
		"seal its own":      {support, "/encode", []*common.Payload{payload(t, plain, request)}, 200},
		"seal another's":    {foreign, "/encode", []*common.Payload{payload(t, plain, request)}, 403},
		"seal for nobody":   {foreign, "/encode", []*common.Payload{payload(t, plain, []string{"x"})}, 403},
		"seal a summary":    {foreign, "/encode", []*common.Payload{summary}, 200},
		"without a tenant":  {olga, "/decode", []*common.Payload{own, result}, 200},
		"nothing to decode": {foreign, "/decode", nil, 200},
	} {
		answer := d.send(t, "POST", test.path, body(t, test.payloads...), bearer(test.operator)...)
		if answer.StatusCode != test.status || name == "another's" && holds(answer.text) || test.status == 403 && holds(answer.text) {
			t.Errorf("%s: %d %s, want %d", name, answer.StatusCode, answer.text, test.status)
		}
	}
	if !strings.Contains(d.log.String(), `"not_theirs":1,"other_tenants":["acme"],"status":403,"reason":"another_tenant"`) {
		t.Errorf("logged %s", d.log)
	}
}

func TestOrigins(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	text := body(t, payload(t, d.converter, request))
	for _, origin := range []string{"https://evil.example.org", "http://127.0.0.1:8234", "https://127.0.0.1:8233", "http://127.0.0.1:8233.evil.example.org", "null"} {
		for _, method := range []string{"POST", "OPTIONS"} {
			answer := d.send(t, method, "/decode", text, append(bearer(olga), "Origin", origin)...)
			if answer.StatusCode != 403 || answer.Header.Get("Access-Control-Allow-Origin") != "" || holds(answer.text) {
				t.Errorf("%s from %s: %d %v", method, origin, answer.StatusCode, answer.Header)
			}
		}
	}
	answer := d.send(t, "OPTIONS", "/decode", "", "Origin", uiURL, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "content-type,x-namespace")
	if h := answer.Header; answer.StatusCode != 204 || h.Get("Access-Control-Allow-Origin") != uiURL || h.Get("Access-Control-Allow-Credentials") != "true" ||
		h.Get("Access-Control-Allow-Headers") != "Content-Type, Authorization, X-Namespace" || !strings.Contains(h.Get("Access-Control-Allow-Methods"), "POST") || h.Get("Vary") != "Origin" {
		t.Errorf("%d %v", answer.StatusCode, h)
	}
	if answer := d.send(t, "POST", "/decode", text, append(bearer(olga), "Origin", uiURL)...); answer.StatusCode != 200 || answer.Header.Get("Access-Control-Allow-Origin") != uiURL {
		t.Errorf("%d %v", answer.StatusCode, answer.Header)
	}
	// A page of the Web UI reads that it has to log in.
	if answer := d.send(t, "POST", "/decode", text, "Origin", uiURL); answer.StatusCode != 401 || answer.Header.Get("Access-Control-Allow-Origin") != uiURL {
		t.Errorf("%d %v", answer.StatusCode, answer.Header)
	}
}

func TestMalformedRequests(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	many := make([]*common.Payload, 1001)
	for i := range many {
		many[i] = payload(t, d.converter, "x")
	}
	for name, test := range map[string]struct {
		method, path, text string
		status             int
		says               string
	}{
		"too large":        {"POST", "/decode", `{"payloads":[{"data":"` + strings.Repeat("A", 4<<20) + `"}]}`, 413, "4 MiB"},
		"too many":         {"POST", "/decode", body(t, many...), 413, "1000 payloads"},
		"no JSON":          {"POST", "/decode", canary, 400, "the body is not"},
		"nothing":          {"POST", "/decode", "", 400, "the body is not"},
		"another form":     {"POST", "/encode", `{"` + canary + `":1}`, 400, "the body is not"},
		"GET":              {"GET", "/decode", "", 405, "POST"},
		"another path":     {"POST", "/x/decode", "{}", 404, ""},
		"no payloads":      {"POST", "/decode", "{}", 200, ""},
		"the way to login": {"GET", "/", "", 303, ""},
	} {
		answer := d.send(t, test.method, test.path, test.text, bearer(olga)...)
		if answer.StatusCode != test.status || !strings.Contains(answer.text, test.says) || holds(answer.text) {
			t.Errorf("%s: %d %.200s, want %d", name, answer.StatusCode, answer.text, test.status)
		}
	}
	if holds(d.log.String()) {
		t.Errorf("content was logged: %s", d.log)
	}
}

func TestKeysThatCannotBeHad(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	text := body(t, payload(t, d.converter, request))
	d.source.fail(db.ErrNoVault)
	if answer := d.send(t, "POST", "/decode", text, bearer(olga)...); answer.StatusCode != 503 {
		t.Errorf("%d %s", answer.StatusCode, answer.text)
	}
	d.source.fail(nil)
	d.source.destroy(ann)
	plain := body(t, payload(t, converter.GetDefaultDataConverter(), request))
	if answer := d.send(t, "POST", "/encode", plain, bearer(olga)...); answer.StatusCode != 400 || !strings.Contains(answer.text, "destroyed") {
		t.Errorf("%d %s", answer.StatusCode, answer.text)
	}
}

// What cannot be opened goes back as it came, and what stands beside it is
// opened.
func TestDecodeOpensWhatItCan(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	bob := request
	bob.User, bob.Message = "bob", "bob asks"
	own, destroyed := payload(t, d.converter, bob), payload(t, d.converter, request)
	damaged := payload(t, d.converter, bob)
	damaged.Data[50] ^= 1
	result := payload(t, d.converter, agent.RunResult{RunID: "run-1"})
	invented := payload(t, d.converter, bob)
	invented.Metadata["subject"] = []byte("nobody")
	malformed := payload(t, d.converter, bob)
	malformed.Metadata["subject"] = []byte("ann\nx")
	d.source.destroy(ann)
	owners := d.source.owners()
	payloads := []*common.Payload{own, destroyed, damaged, result, invented, malformed, payload(t, d.converter, "step 1: look")}
	for name, test := range map[string]struct {
		operator config.Operator
		opened   []int
		logs     string
	}{
		"all tenants":    {olga, []int{0, 3}, `"with_keys":6,"tenants":["(deployment)","acme"],"unreadable":4,"took"`},
		"its own tenant": {support, []int{0}, `"with_keys":5,"tenants":["acme"],"unreadable":4,"not_theirs":1,"other_tenants":["(deployment)"],"took"`},
		"another tenant": {foreign, nil, `"with_keys":0,"tenants":[],"not_theirs":6,"other_tenants":["(deployment)","acme"],"took"`},
	} {
		d.log.Reset()
		answer := d.send(t, "POST", "/decode", body(t, payloads...), bearer(test.operator)...)
		if answer.StatusCode != 200 {
			t.Errorf("%s: %d %s", name, answer.StatusCode, answer.text)
			continue
		}
		for i, got := range answer.payloads(t) {
			opened := slices.Contains(test.opened, i)
			if same := proto.Equal(got, payloads[i]); same == opened || opened && !strings.Contains(string(got.Data), `"bob asks"`) && !strings.Contains(string(got.Data), "run-1") {
				t.Errorf("%s: payload %d came back as %v", name, i, got)
			}
		}
		if !strings.Contains(d.log.String(), test.logs) {
			t.Errorf("%s: logged %s", name, d.log)
		}
	}
	if got := d.source.owners(); got != owners {
		t.Errorf("%d owners have keys, want %d", got, owners)
	}
}

func TestOriginOfTheUI(t *testing.T) {
	t.Parallel()
	for address, origin := range map[string]string{
		"HTTPS://Temporal.Example.org:443/ui": "https://temporal.example.org",
		"http://localhost:80":                 "http://localhost",
		"http://localhost:443":                "http://localhost:443",
		"https://temporal.example.org:8443/":  "https://temporal.example.org:8443",
		"http://[::1]:80":                     "http://[::1]",
		"http://[::1]:8233":                   "http://[::1]:8233",
		"http://localhost:/":                  "http://localhost",
	} {
		handler, err := codec.NewHandler(codec.ServerOptions{Source: newStore(t).program(), Operators: []config.Operator{olga}, UIURL: address, Log: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodOptions, "/decode", nil)
		r.Header.Set("Origin", origin)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if got := w.Header().Get("Access-Control-Allow-Origin"); w.Code != 204 || got != origin {
			t.Errorf("%s: %s is answered with %d, %q", address, origin, w.Code, got)
		}
	}
}

// A service without the database starts runs through the codec server: it seals
// the request there, and the worker opens it with the subject's keys.
func TestServiceWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	service := converter.NewRemoteDataConverter(converter.GetDefaultDataConverter(), converter.RemoteDataConverterOptions{
		Endpoint: d.URL,
		ModifyRequest: func(r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+support.Token.Value())
			return nil
		},
	})
	input, err := service.ToPayloads(request)
	if err != nil {
		t.Fatal(err)
	}
	if p := input.Payloads[0]; metadata(p, "encoding") != codec.Encoding || metadata(p, "tenant") != "acme" || metadata(p, "subject") != "ann" || strings.Contains(p.String(), "canary") {
		t.Errorf("the service sends %v", p)
	}
	worker := codec.DataConverter(d.source.store.program())
	var got agent.RunRequest
	if err := worker.FromPayloads(input, &got); err != nil || got.Message != canary {
		t.Errorf("the worker reads %+v, %v", got, err)
	}
	// The summary that the service gives its run stays readable.
	if p := payload(t, service, "opspilot for ann of acme"); string(p.Data) != `"opspilot for ann of acme"` {
		t.Errorf("the summary became %v", p)
	}
	d.source.destroy(ann)
	if _, err := service.ToPayloads(request); err == nil || !strings.Contains(err.Error(), "destroyed") {
		t.Errorf("after the keys were destroyed: %v", err)
	}
}

func ExampleNewHandler_remote() {
	// How a backend service without the database makes its Temporal client:
	//
	//	client.Dial(client.Options{DataConverter: remote})
	remote := converter.NewRemoteDataConverter(converter.GetDefaultDataConverter(), converter.RemoteDataConverterOptions{
		Endpoint: "https://codec.example.org",
		ModifyRequest: func(r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+"token of the service")
			return nil
		},
	})
	_ = remote
}
