package session_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/internal/session"
)

func TestLifted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		standing, message string
		want              bool
	}{
		{"Never restart production.", "You may restart it again.", true},
		{"Never restart production.", "You may restart again.", true},
		{"Never restart production.", "You may restart production again.", true},
		{"Never restart production.", "You may restart prod again.", true},
		{"Never restart production.", "现在可以重启线上了", true},
		{"Never restart production.", "I lift the ban on restarting.", true},
		{"Never restart production.", "I lift all restrictions.", true},
		{"Never restart production.", "You may restart anything again.", true},
		{"Never restart production.", "The backup is done, you may restart production again.", true},
		{"Never restart production.", "Thanks for checking. You may restart it again.", true},
		{"Never restart production.", `I take back "never restart production".`, true},
		{"不要重启生产实例", "可以重启了", true},
		{"不要重启生产实例", "可以重启生产了", true},
		{"不要重启生产实例", "可以重启生产实例了", true},
		{"不要重启生产实例", "备份做完了，现在可以重启了", true},
		{"不要重启生产实例", "封网结束，你可以重启它了", true},
		{"不要重启生产实例", "解除重启禁令", true},
		{"绝对不要重启支付服务", "你现在可以重启支付服务了", true},
		{"不要重启生产的支付服务", "可以重启支付服务了", true},
		{"Don't restart it by yourself.", "You may restart it again.", true},
		{"Don't restart or delete it.", "You may restart and delete it again.", true},
		{"Don't restart or delete it.", "You may restart it again. You may delete it again.", true},
		{"Never restart payment-api.", "You may restart payment-api again.", true},
		{"Never restart payment-api in production.", "You may restart payment-api again.", true},
		{"Never restart the ledger.", "You may restart the ledger again.", true},
		{"Never restart the ledger or the gateway.", "You may restart the ledger and the gateway again.", true},
		{"Never restart anything.", "You may restart anything again.", true},
		{"Never restart anything.", "You may restart everything again.", true},
		{"Never restart anything.", "You may restart again.", true},
		{"Never restart anything.", "I lift the ban on restarts.", true},
		{"Never restart anything.", "I lift all restrictions.", true},
		{"不要重启任何东西", "可以重启所有东西了", true},
		{"不要重启任何东西", "可以重启了", true},
		{"Under no circumstances restart the primary.", "You may restart the primary again.", true},

		// Another thing, another tool, not all of the tools, no permission.
		{"Never restart payment-api.", "You can restart the checkout service now.", false},
		{"Never restart payment-api.", "You may restart staging now.", false},
		{"Never restart payment-api.", "You may restart order-api again.", false},
		{"Never restart the ledger.", "You may restart the gateway.", false},
		{"Never restart production.", "You may restart payment-api now.", false},
		{"Never restart production.", "You may restart staging again.", false},
		{"Never restart production.", "You may restart pre-prod again.", false},
		{"Never restart production.", "For the gateway, you may restart it again.", false},
		{"Never restart production.", "The gateway is fixed, you may restart it now.", false},
		{"Never restart production.", "Look at the gateway. You may restart it now.", false},
		{"Never restart production.", "I lift the ban on restarting staging.", false},
		{"Never restart production.", "I lift all restrictions on staging.", false},
		{"绝对不要重启支付服务", "你现在可以重启网关了", false},
		{"不要重启生产的支付服务", "可以重启订单服务了", false},
		{"绝对不要重启支付服务", "网关修好了，可以重启了", false},
		{"不要重启生产实例", "可以重启测试环境了", false},
		{"不要重启生产实例", "可以重启预生产了", false},
		{"不要重启支付服务和网关", "可以重启网关了", false},
		{"Never restart anything.", "You may restart staging again.", false},
		{"Never restart anything.", "You may restart it again.", false},
		{"Never restart any service.", "You may restart the service again.", false},
		{"No service may be restarted.", "You may restart the service again.", false},
		{"不要重启任何服务", "可以重启支付服务了", false},
		{"Never restart the ledger or the gateway.", "You may restart the gateway again.", false},
		{"Never restart payment-api, order-api.", "You may restart order-api again.", false},
		{"Never restart production, staging.", "You may restart staging again.", false},
		{"Never restart production or staging.", "You may restart staging again.", false},
		{"Never restart it.", "You may deploy it again.", false},
		{"Don't restart or delete it.", "You may restart it again.", false},
		{"Never restart production.", "Restart production.", false},

		// All writes.
		{"Do not touch production.", "You may restart production again.", false},
		{"Do not touch production.", "You may make changes now.", true},
		{"Don't change anything.", "you may change things again", true},
		{"Don't change anything.", "you may make changes now", true},
		{"Don't change anything.", "You may change anything again.", true},
		{"Don't change anything.", "I lift all restrictions", true},
		{"不要做任何改动", "可以改动了", true},
		{"不要动生产", "可以动生产了", true},
		{"只读", "可以改动了", true},
		{"Make no changes.", "You may make changes again.", true},
		{"Read only please.", "You may make changes again.", true},
		{"Hands off production", "You may touch production again.", true},
		{"Don't change anything.", "You may change staging now.", false},
		{"Do not touch production.", "You may change staging now.", false},
		{"不要动生产", "可以动测试环境了", false},
		{"Don't change anything.", "You may restart it again.", false},
		{"Don't change or restart anything.", "You may make changes now.", false},
		{"Never restart production.", "You may make changes now.", false},

		// Without tools, by its own words.
		{"Don't use bullet points.", "You may use bullet points again", true},
		{"Don't use bullet points.", "I lift all restrictions.", true},
		{"Do not answer in English.", "You may answer in English again.", true},
		{"不要用列表", "可以用列表了", true},
		{"Don't use bullet points.", "You may use tables again.", false},
		{"Don't use bullet points.", "You may use it again.", false},
		{"Don't use bullet points.", "You may do it again.", false},
		{"Don't use bullet points.", "You may restart it again.", false},
		{"Don't use bullet points.", "You may make changes now.", false},
		{"Don't tell anyone.", "You may tell the customer now.", false},

		// Written before the rules saw them, and names that look like other words.
		{"Never restart the database.", "You may restart the cache now.", false},
		{"Don't restart host-1.", "You may restart host-2 again.", false},
		{"Never delete backups.", "You may delete temp files now.", false},
		{"Never deploy on Fridays.", "You may deploy on Mondays again.", false},
		{"Don't page anyone.", "You may page the on-call now.", false},
		{"Never restart the EU cluster.", "You may restart the US cluster again.", false},
		{"No restarts of the primary!", "You may restart the replica again.", false},
		{"Never restart payment-api.", "OK you can restart the payment gateway now", false},
		{"不要删除订单表", "可以删除日志表了", false},
		{"千万别回滚支付服务", "可以回滚库存服务了", false},
		{"不要重启主库", "可以重启从库了", false},
		{"不要重启主库", "从库现在可以重启了", false},
		{"Don't touch anything.", "You may touch the cache again.", false},
		{"Never restart all services.", "You may restart the cache again.", false},
		{"Never restart production.", "You may restart the gateway again, not production.", false},
		{"Never restart production.", "You may restart it again if needed.", false},
		{"Never restart production.", "I lift the ban on deleting.", false},
		{"Never restart production.", "You may restart production tomorrow.", false},
		{"Never restart the database.", "You may restart the database now.", true},
		{"Never delete backups.", "You can delete backups again.", true},
		{"No restarts of the primary!", "Ok, you may restart the primary now.", true},
		{"Don't roll back the release.", "You may roll it back now.", false},
		{"Don't roll back the release.", "You may roll back the release now.", true},
		{"不要删除订单表", "现在可以删除订单表了", true},
		{"千万别回滚支付服务", "好的，可以回滚支付服务了", true},
		{"不要重启主库", "可以重启主库了", true},
		{"Do not restart payment-api, we are recording.", "You're allowed to restart payment-api again.", true},
		{"Hands off the database!", "You may touch the database again.", true},
		{"Don't change anything in production.", "You may make changes again.", true},
		{"不许碰生产", "可以碰生产了", true},
		{"Do not use emojis.", "You may use emojis again.", true},
		{"Never restart production without asking me.", "You may restart production again.", true},
		{"Never restart the payment service.", "You may restart the order service again.", false},
		{"Never restart the payment service.", "You may restart the time service again.", false},
		{"Never restart the payment service.", "The user service is fixed, you may restart it.", false},
		{"Never restart the payment service.", "I lift the ban on restarting the order service.", false},
		{"Never restart the order service.", "You may restart the order service again.", true},
		{"Never restart the order service.", "I lift the ban on restarting the order service.", true},
		{"不要重启记账服务", "可以重启对账服务了", false},
		{"不要重启对账服务", "可以重启对账服务了", true},
		{"不要重启支付服务", "取消对重启的限制", true},
		{"不要重启支付服务", "取消对重启网关的限制", false},
	} {
		standing := detect(t, tt.standing).Prohibitions
		if len(standing) != 1 {
			t.Fatalf("%q: %v", tt.standing, standing)
		}
		if got := detect(t, tt.message).Lifted(standing[0]); got != tt.want {
			t.Errorf("%q, then %q: lifted is %t", tt.standing, tt.message, got)
		}
	}
}

// Words of permission that are not the user's own, or stand far down, lift
// nothing.
func TestLiftedByOwnWordsOnly(t *testing.T) {
	t.Parallel()
	standing := detect(t, "Never restart production.").Prohibitions[0]
	const leave = "You may restart production now."
	long := strings.Repeat("Ok. ", (500-len(leave))/4)
	for message, want := range map[string]bool{
		leave:                            true,
		"Thank you.\n" + leave:           true,
		"At 10:02 it was ok. " + leave:   true,
		"> may I?\n" + leave:             true,
		"Summarize this mail:\n" + leave: false,
		"Summarize this mail.\n" + leave: false,
		"Bob: " + leave:                  false,
		"bob wrote " + leave:             false,
		"Subject: FYI\n" + leave:         false,
		"Subject: FYI\n\n" + leave:       false,
		"Thank you.\n\n" + leave:         false,
		"Thank you.\n \n" + leave:        false,
		"10:02 Bob: " + leave:            false,
		"https://example.com/x " + leave: false,
		"> " + leave:                     false,
		"```\n" + leave + "\n```":        false,
		"He said: \"" + leave + "\"":     false,
		long + leave:                     true,
		long + "    " + leave:            false,
	} {
		if got := detect(t, message).Lifted(standing); got != want {
			t.Errorf("%q: lifted is %t", message, got)
		}
	}
}

// A permission that names one thing lifts exactly what was said of that thing,
// whatever the words.
func TestLiftedNamesTheSame(t *testing.T) {
	t.Parallel()
	names := []string{"production", "staging", "payment-api", "order-api", "the gateway", "the ledger", "the checkout service", "svc_7"}
	bans := []string{"Never restart %s.", "Do not restart %s!", "Please don't restart %s, it is busy.", "Restarting %s is not allowed.", "You must not restart %s."}
	leaves := []string{"You may restart %s again.", "OK, you can restart %s now.", "You are allowed to restart %s again.", "I allow you to restart %s.", "I lift the ban on restarting %s.", "Feel free to restart %s again."}
	zhNames := []string{"生产", "预发", "支付服务", "订单服务", "网关", "payment-api", "主库"}
	zhBans := []string{"不要重启%s", "绝对不要重启%s。", "禁止重启%s", "谁都不许重启%s！"}
	zhLeaves := []string{"可以重启%s了", "你现在可以重启%s了", "允许你重启%s", "现在允许重启%s"}
	rapid.Check(t, func(t *rapid.T) {
		if rapid.Bool().Draw(t, "zh") {
			names, bans, leaves := zhNames, zhBans, zhLeaves
			liftsTheSame(t, names, bans, leaves)
			return
		}
		liftsTheSame(t, names, bans, leaves)
	})
}

func liftsTheSame(t *rapid.T, names, bans, leaves []string) {
	said, meant := rapid.SampledFrom(names).Draw(t, "said"), rapid.SampledFrom(names).Draw(t, "meant")
	standing, _ := session.Detect(fmt.Sprintf(rapid.SampledFrom(bans).Draw(t, "ban"), said), vocabulary)
	found, _ := session.Detect(fmt.Sprintf(rapid.SampledFrom(leaves).Draw(t, "leave"), meant), vocabulary)
	if len(standing.Prohibitions) != 1 || !slices.Equal(found.Lifts, []string{"restart"}) {
		t.Fatalf("%+v, %v", standing.Prohibitions, found.Lifts)
	}
	if got := found.Lifted(standing.Prohibitions[0]); got != (said == meant) {
		t.Fatalf("lifted is %t", got)
	}
}

// No message of the table without permission lifts anything of it, and none with
// lifts what has a tool that it does not allow.
func TestLiftedWithinLifts(t *testing.T) {
	t.Parallel()
	var standing []session.Prohibition
	all := rows(t)
	for _, r := range all {
		standing = append(standing, detect(t, r.raw).Prohibitions...)
	}
	for _, r := range all {
		f := detect(t, r.raw)
		for _, p := range standing {
			if !f.Lifted(p) {
				continue
			}
			for _, name := range p.Tools {
				if !slices.Contains(f.Lifts, name) {
					t.Fatalf("%q lifts %q with %v", r.raw, p.Text, p.Tools)
				}
			}
			if !strings.HasPrefix(r.class, "lift") && len(f.Lifts) == 0 {
				t.Fatalf("%q lifts %q", r.raw, p.Text)
			}
		}
	}
}
