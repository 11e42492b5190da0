package summary

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestTokens(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		// Identifiers, whatever stands around them.
		"Order ORD-2291 is late, and ticket #4512 too.":                  "ord-2291 4512",
		"payment-api's pool (payment-api) failed":                        "payment-api payment-api",
		"重启payment-api吧，订单号ORD-2291。":                                    "payment-api ord-2291",
		"upgrade to v1.2.3, not 1.10":                                    "v1.2.3 1.10",
		"commit 3f9a2c1 and deadbeef":                                    "3f9a2c1",
		"id 6ba7b810-9dad-11d1-80b4-00c04fd430c8.":                       "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
		"10.0.0.12 and 10.0.0.12:8080 or 10.0.0.0/8":                     "10.0.0.12 10.0.0.12:8080 10.0.0.0/8",
		"fe80::1:2 answers":                                              "fe80::1:2",
		"db-1.internal:5432/orders":                                      "db-1.internal:5432",
		"see https://a.example/x?id=7&b=2, then mail Ada.L@Example.com!": "https://a.example/x?id=7&b=2 ada.l@example.com",
		"见https://a.example/订单，谢谢":                                       "https://a.example/",
		"payment\u2011api and payment\u200b-api":                         "payment-api payment-api",
		"ＰＡＹＭＥＮＴ－ＡＰＩ":                                                    "payment-api",
		"restart payment-api/order-api":                                  "payment-api order-api",
		"_payment-api_ or **ORD-1_**":                                    "payment-api ord-1",
		"pool_size p99 k8s":                                              "pool_size p99 k8s",
		"a long-term follow-up, and/or read-only":                        "",
		// Numbers.
		"1,000 is 1000 is １，０００":                        "1000 1000 1000",
		"订单12，34和5":                                     "12 34 5",
		"5% or 5 percent of 0.50":                       "5% 5% 0.50",
		"100ms, 30-minute, 2nd, 5xx, mid-2024":          "100 30 2 5 2024",
		"at 09:46 or 9:46 or 10:30pm or 3 p.m.":         "9:46 9:46 10:30pm 3pm",
		"2026-11-30, 2026/11/30, 2026年11月30日 10点30分":    "2026-11-30 2026-11-30 2026-11-30 10:30",
		"at 2026-11-30T09:46:12.5Z":                     "2026-11-30t09:46:12.5z",
		"from 5-10 to 10–20, at -5 degrees":             "5 10 10 20 -5",
		"call 138-0000-1111, code 0042":                 "138-0000-1111 0042",
		"$1,299.99 and ٤٢":                              "1299.99 42",
		"the count is 5.Then it fell":                   "5",
		"I am at 5":                                     "5",
		"redis:6379 is not localhost:6379":              "6379 localhost:6379",
		"1. first\n2) second 3\n(3) third\n4、第四\n① 五 6": "3 6",
		"5":  "5",
		"5.": "",
	} {
		var forms []string
		for _, token := range fold(text).tokens() {
			forms = append(forms, token.form)
		}
		if got := strings.Join(forms, " "); got != want {
			t.Errorf("%q has %q, want %q", text, got, want)
		}
	}
}

func TestTokensKeepTheirSpelling(t *testing.T) {
	t.Parallel()
	d, err := demandsOf(Message{Text: "ORD-2291 cost 1,000 at 3 p.m.; 見た：ＯＲＤ－７, 2026年11月30日, 30-minute, \u00bd."})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, demand := range d.tokens {
		got = append(got, demand.text)
	}
	want := []string{"ORD-2291", "1,000", "3 p.m.", "ＯＲＤ－７", "2026年11月30日", "30", "1", "2"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestNumerals(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"twelve of twenty": "12 20", "三百二十个": "320", "二〇二六年": "2026", "十四次": "14", "两万三千": "23000", "someone": "",
	} {
		got := numerals(text)
		for _, form := range strings.Fields(want) {
			if !got[form] {
				t.Errorf("%q has %v, want %s", text, got, form)
			}
		}
		if len(got) != len(strings.Fields(want)) {
			t.Errorf("%q has %v, want %s", text, got, want)
		}
	}
}

// pieces make texts in which everything touches everything.
var pieces = []string{
	"ORD-2291", "payment-api", "v1.2.3", "1,000", "5", "5%", "10:30", "3 p.m.", "2026-11-30", "2026年11月30日", "https://a.example/x", "ada@example.com",
	"3f9a2c1", "10.0.0.1:80", "-7", "０４２", "重启", "を", "the", "not", "½", "\u200b", "′", "ﬁ", "٤٢", "_", "é", "e\u0301", "\u00df", "İ",
	" ", " ", " ", ",", ".", "。", "，", "：", ":", "-", "–", "/", "(", ")", "'", "\"", "@", "+", "\n", "\n1. ", "\n- ", "%", "\x00", "\xff",
}

// TestTokensStandAlone is what must_appear rests on: its entries are the tokens
// that they stand for.
func TestTokensStandAlone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 20).Draw(t, "pieces"), "")
		d, err := demandsOf(Message{Text: text})
		if err != nil {
			t.Fatal(err)
		}
		for _, demand := range d.tokens {
			again := fold(demand.text).tokens()
			if len(again) != 1 || again[0].form != demand.form {
				t.Fatalf("%q of %q alone is %v, want %q", demand.text, text, again, demand.form)
			}
		}
	})
}
