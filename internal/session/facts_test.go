package session_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/session"
	"github.com/fairlead/fairlead/tool"
)

func TestFacts(t *testing.T) {
	t.Parallel()
	const content = `{
		"service": {"id": "svc_pay", "name": "支付服务", "port": 8443, "ratio": 0.10, "big": 12345678901234567890, "exp": 1E3, "up": true, "down": false, "note": null},
		"a/b": "slash", "m~n": "tilde", "~1": "escape", "": "nameless", "list": [{"id": "first"}, "second", 3],
		"0": "zero", "long": "` + "LONG" + `", "lines": "a\nb", "empty": "", "object": {}, "emoji": "\ud83d\ude00"
	}`
	doc := strings.Replace(content, "LONG", strings.Repeat("v", 257), 1)
	for pointer, want := range map[string]string{
		"/service/id":    "svc_pay",
		"/service/name":  "支付服务",
		"/service/port":  "8443",
		"/service/ratio": "0.10",
		"/service/big":   "12345678901234567890",
		"/service/exp":   "1E3",
		"/service/up":    "true",
		"/service/down":  "false",
		"/a~1b":          "slash",
		"/m~0n":          "tilde",
		"/~01":           "escape",
		"/":              "nameless",
		"/0":             "zero",
		"/list/0/id":     "first",
		"/list/1":        "second",
		"/list/2":        "3",
		"/emoji":         "😀",
		// No facts.
		"":                    "",
		"/service":            "",
		"/service/note":       "",
		"/service/absent":     "",
		"/service/id/0":       "",
		"/list":               "",
		"/list/3":             "",
		"/list/-":             "",
		"/list/-1":            "",
		"/list/01":            "",
		"/list/+1":            "",
		"/list/1e0":           "",
		"/list/":              "",
		"/list/9999999999999": "",
		"/long":               "",
		"/lines":              "",
		"/empty":              "",
		"/object":             "",
		"service":             "",
	} {
		var list []session.Fact
		if want != "" {
			list = []session.Fact{{Key: "key", Value: want}}
		}
		if got := session.Facts([]tool.Fact{{Key: "key", Pointer: pointer}}, []byte(doc)); !slices.Equal(got, list) {
			t.Errorf("%q: got %v, want %v", pointer, got, list)
		}
	}
	both := session.Facts([]tool.Fact{{Key: "b", Pointer: "/service/id"}, {Key: "absent", Pointer: "/x"}, {Key: "Bad key", Pointer: "/service/id"}, {Key: "a", Pointer: "/service/up"}}, []byte(doc))
	if want := []session.Fact{{"b", "svc_pay"}, {"a", "true"}}; !slices.Equal(both, want) {
		t.Errorf("got %v", both)
	}
}

func TestFactsOfWholeDocuments(t *testing.T) {
	t.Parallel()
	spec := []tool.Fact{{Key: "whole", Pointer: ""}}
	for content, want := range map[string]string{
		`"svc_pay"`: "svc_pay", ` 7 `: "7", "true": "true",
		// Not one JSON value: a text, or JSON that was cut.
		"": "", "plain text": "", `{"a":`: "", `"a" "b"`: "", `1,`: "", `null`: "", `[1]`: "",
	} {
		got := session.Facts(spec, []byte(content))
		if want == "" && got != nil || want != "" && !slices.Equal(got, []session.Fact{{Key: "whole", Value: want}}) {
			t.Errorf("%q: got %v, want %q", content, got, want)
		}
	}
	if got := session.Facts(nil, []byte("{")); got != nil {
		t.Errorf("got %v", got)
	}
}
