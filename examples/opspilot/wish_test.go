package opspilot

import "testing"

func TestWish(t *testing.T) {
	t.Parallel()
	fix, nothing, off := wish{fix: true}, wish{}, wish{handsOff: true}
	for text, want := range map[string]wish{
		"payment-api in production fails. Find out why, fix it if you can, and show me the evidence.": fix,
		"Restart payment-api":                         fix,
		"Can you repair payment-api?":                 fix,
		"It does not answer and I want you to fix it": fix,
		"No, restart it":                              fix,
		"Find out why and resolve it":                 fix,
		"payment-api 为什么失败？请修复":                       fix,
		"支付服务挂了，帮我重启一下":                               fix,
		"找出原因并解决":                                     fix,
		"它没有响应，请恢复":                                   fix,

		"Why does payment-api fail?":                            nothing,
		"Why does payment-api in production fail? Show me why.": nothing,
		"Did the restart help?":                                 nothing,
		"It fails since the last restart. Why?":                 nothing,
		"It was restarted and fails again. Why?":                nothing,
		"payment-api 为什么失败？":                                    nothing,
		"已经重启了还是失败，为什么":                                         nothing,
		"为什么一直没有恢复":                                             nothing,
		"payment-api 修复了吗":                                      nothing,
		"":                                                      nothing,

		"Why does payment-api fail? Do not restart it.":   off,
		"Why does it fail? Don't fix anything":            off,
		"Why does it fail? Don’t fix anything":            off,
		"Fix it without restarting":                       off,
		"Find out why it fails; never restart production": off,
		"No need to restart, just look":                   off,
		"为什么失败？不要重启":                                      off,
		"先别重启，看看日志":                                       off,
		"禁止自动修复":                                          off,
	} {
		if got := (wish{}).after(text); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

// A "do not" holds until a restart is asked for by that word.
func TestWishRemembersProhibitions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		said []string
		want wish
	}{
		{[]string{"Why does payment-api fail? Do not restart it.", "And its error log?"}, wish{handsOff: true}},
		{[]string{"Do not restart payment-api.", "Fix it."}, wish{handsOff: true}},
		{[]string{"Do not restart payment-api.", "Fix it.", "All right, restart it."}, wish{fix: true}},
		{[]string{"不要重启 payment-api", "修复它"}, wish{handsOff: true}},
		{[]string{"Fix payment-api.", "Why did it fail?"}, wish{}},
	} {
		var got wish
		for _, text := range c.said {
			got = got.after(text)
		}
		if got != c.want {
			t.Errorf("%q: %+v, want %+v", c.said, got, c.want)
		}
	}
}
