package summary

import (
	"slices"
	"testing"
)

func TestNegationsAreCounted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"it is not paid": 1, "it isn’t paid": 1, "never pay without asking": 2, "Neither ORD-1 nor ORD-2 was paid": 1, "nor was it paid": 1,
		"it failed to start": 1, "the restart did not fail": 2, "not only slow": 0, "No. 5 was paid": 0, "do not forget to pay": 0, "it is paid": 0,
		"restarts are forbidden": 1, "we cannot see it": 1, "another one": 0, "nothing was lost": 1,
		"不要重启": 1, "没有支付": 1, "特别的服务": 0, "不得不重启": 0, "能不能重启": 0, "要不要重启": 0, "没有失败": 2, "勿删": 1, "未支付": 1, "未来": 0, "无法连接": 1, "別刪除": 1, "沒有": 1,
		"再起動しないでください": 1, "支払われていません": 1, "支払われませんでした": 1, "確認しなければならない": 0, "かもしれません": 0, "再起動は禁止": 1, "別の注文": 0, "支払った": 0, "使わずに": 1, "すみません": 0,
	} {
		if got := negates(fold(text).text); got != want {
			t.Errorf("%q negates %d times, want %d", text, got, want)
		}
	}
}

func TestClauses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"It was shipped, but not paid. Why?":           {"it was shipped", "not paid", "why"},
		"Do not restart, stop, or delete payment-api.": {"do not restart stop or delete payment-api"},
		"It was not paid and was not shipped":          {"it was not paid", "and was not shipped"},
		"v1.2 of a.example is up! Fine":                {"v1.2 of a.example is up", "fine"},
		"Do not restart it unless I say so":            {"do not restart it", "i say so"},
		"Restart it without asking":                    {"restart it", "without asking"},
		"已发货，但未支付。为什么？":                                {"已发货", "未支付", "为什么"},
		"不要重启、停止payment-api":                           {"不要重启、停止payment-api"},
		"発送済みですが、支払われていません":                            {"発送済みですが", "支払われていません"},
		"未经我同意不要重启":                                    {"未经我同意", "不要重启"},
	} {
		clauses, _ := units(text)
		var got []string
		for _, u := range clauses {
			got = append(got, u.text)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestChangedNegations(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, source, text string
		changed            bool
	}{
		{"dropped", "The order was not shipped.", "The order was shipped.", true},
		{"added", "The order was shipped on Monday.", "The order was not shipped on Monday.", true},
		{"kept", "The order wasn't shipped.", "The order was not shipped.", false},
		{"other word for it", "Restarting payment-api is forbidden.", "payment-api must not be restarted.", false},
		{"two make one", "The restart of payment-api never fails.", "The restart of payment-api fails.", true},
		{"clause kept", "The order was shipped but not paid.", "The order was shipped.", false},
		{"clause joined", "The order was shipped but not paid.", "The order was shipped and paid.", true},
		{"said both ways", "Restart payment-api. No, do not restart payment-api.", "The user asked to restart payment-api.", false},
		{"out of a list", "Do not restart, stop, or delete payment-api.", "Delete payment-api.", true},
		{"one of two", "The invoice was not paid and the order was not shipped.", "The invoice was paid.", true},
		{"neither", "Neither the gateway nor the database was down.", "The gateway and the database were down.", true},
		{"without", "Deploy it without downtime.", "Deploy it with downtime.", true},
		{"unrelated", "The gateway does not answer.", "The pool of the database is exhausted.", false},
		{"said of it", "I do not know whether payment-api is down.", "The user asked whether payment-api is down.", false},
		{"half of it", "The refund for the customer was not approved.", "The customer sent a letter with the refund.", false},
		{"of another verb", "The order that was shipped on Monday in two boxes did not include the blue cable for the new printer.", "The order was shipped.", false},
		{"one word", "I did not restart it.", "The assistant restarted it.", true},
		{"a name alone", "payment-api is not down.", "payment-api: the user asked about it.", false},
		{"other verb", "The refund of ORD-2291 failed.", "The refund of ORD-2291 worked.", true},
		{"ordered and failed", "Refund 49.90 by Friday. The refund of ORD-2291 failed.", "The refund of 49.90 failed.", false},
		{"Chinese", "支付服务没有超时。", "支付服务超时。", true},
		{"Chinese kept", "支付服务没有超时。", "助手说支付服务未超时。", false},
		{"Chinese order", "不要重启生产环境的支付服务。", "重启生产环境的支付服务。", true},
		{"Chinese clause", "订单已发货，但没有支付。", "订单已发货。", false},
		{"Traditional", "訂單沒有支付成功。", "訂單支付成功。", true},
		{"Japanese", "決済サービスは再起動されていません。", "決済サービスは再起動されています。", true},
		{"Japanese kept", "決済サービスを再起動しないでください。", "決済サービスの再起動は禁止。", false},
	} {
		index := indexNegations([]Message{{Seq: 1, Text: c.source}})
		if got := index.changedNegations(c.text, false); len(got) > 0 != c.changed {
			t.Errorf("%s: %q after %q: changed = %q, want %t", c.name, c.text, c.source, got, c.changed)
		}
	}
}

// TestChangeIsNamedOnce: the feedback has no room to waste.
func TestChangeIsNamedOnce(t *testing.T) {
	t.Parallel()
	index := indexNegations([]Message{{Seq: 1, Text: "The order was not shipped."}})
	if got := index.changedNegations("The order was shipped. The order was shipped.", false); !slices.Equal(got, []string{"the order was shipped"}) {
		t.Errorf("%q", got)
	}
}

// TestTasks: what has not happened is to be done, what was forbidden is not.
func TestTasks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		source, task string
		changed      bool
	}{
		{"The ticket INC-0042 has not been assigned.", "Assign the ticket INC-0042", false},
		{"工单 INC-0042 还没有分配负责人。", "给工单 INC-0042 分配负责人", false},
		{"The refund of ORD-2291 failed.", "Refund ORD-2291", false},
		{"Never restart production by yourself.", "Restart production", true},
		{"Do not refund ORD-2291.", "Refund ORD-2291", true},
		{"不要重启支付服务。", "重启支付服务", true},
		{"決済サービスを再起動しないでください。", "決済サービスを再起動", true},
		{"Please refund ORD-2291.", "Do not refund ORD-2291", true},
	} {
		index := indexNegations([]Message{{Seq: 1, Text: c.source}})
		if got := index.changedNegations(c.task, true); len(got) > 0 != c.changed {
			t.Errorf("%q after %q: changed = %q, want %t", c.task, c.source, got, c.changed)
		}
	}
}

func TestQuotedAgainst(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		message, words string
		want           bool
	}{
		{"never restart production", "restart production", true},
		{"never restart production", "restart", true},
		{"never restart production", "production", false},
		{"never restart production. ok, restart it once", "restart", false},
		{"不要重启生产环境", "重启", true},
		{"不要重启生产环境", "生产环境", false},
		{"再起動しないでください", "再起動", true},
		{"the refund is not allowed", "the refund", true},
		{"use staging, not production", "production", true},
		{"use staging, not production", "staging", false},
	} {
		if got := quotedAgainst(squash(c.message), squash(c.words)); got != c.want {
			t.Errorf("%q of %q: %t, want %t", c.words, c.message, got, c.want)
		}
	}
}
