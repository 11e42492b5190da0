package learning_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/learning"
)

func TestWorth(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		// Chatter.
		"ok": false, "OK!": false, "Okay, thanks a lot.": false, "yes": false, "No, thank you!": false, "Great job, thanks for your help": false,
		"好的": false, "嗯": false, "嗯嗯": false, "谢谢!": false, "好的,明白了。": false, "收到": false, "是的": false, "辛苦了": false, "ｏｋ": false, "o\u200bk": false,
		"": false, "   \n": false, "👍": false, "...": false, "42": false, "hi": false, "你好": false, "I see. That sounds great!": false, "好的\n谢谢": false, "I love it": false,
		// Questions and orders.
		"What is my default environment?": false, "Which environment do I use by default?": false, "who owns payment-api": false, "Is payment-api down?": false,
		"我喜欢什么": false, "我的默认环境是什么?": false, "支付服务谁负责?": false, "我吃素吗": false, "多租户是什么": false, "我们最近配置的 rerank 精排是什么模型": false,
		"restart payment-api in staging": false, "Please restart payment-api.": false, "Can you check the logs of checkout?": false, "Show me the errors": false,
		"Give me the last 20 lines.": false, "帮我查一下 payment-api": false, "重启 payment-api": false, "请告诉我错误日志": false, "麻烦看一下支付服务": false, "能不能重启一下": false,
		"Could you tell us why?": false, "I want to know why checkout fails": false, "hi, show me the logs": false, "デフォルトの環境は何ですか": false,
		// Statements.
		"I'm vegetarian": true, "My time zone is Europe/Berlin": true, "We deploy on Tuesdays.": true, "I love Chinese food": true, "I hate Chinese food!": true,
		"Default to production from now on": true, "From now on, answer in German.": true, "Could you always answer in German?": true, "Can you call me Al?": true,
		"Always use staging": true, "Remember that payment-api belongs to billing": true, "please answer briefly from now on": true, "Payment-api is owned by the billing team.": true,
		"Do not use staging for demos": true, "When I say prod I mean production": true, "ok, but I prefer short answers": true, "Restart it. And from now on drain first.": true,
		"以后默认用生产环境": true, "我是素食者": true, "我喜欢苹果": true, "我昨天吃了牛排": true, "以后请用中文回答": true, "能不能以后都用中文回答我?": true, "我不再吃素了": true,
		"支付服务归账务组负责": true, "叫我小李": true, "好的,不过我更喜欢简短的回答": true, "我们组的代号是猎鹰": true, "これからは日本語で答えて": true,
		"Forget my time zone": true, "忘掉我的时区": true, "restart my pod": true, "What a day. I moved to Berlin.": true, "version 2.5 is what we run": true,
	} {
		if got := learning.Worth(text); got != want {
			t.Errorf("%q: %t, want %t", text, got, want)
		}
	}
	if !learning.Worth(strings.Repeat("ok. ", 3000)) {
		t.Error("a long text is left out")
	}
	if learning.Worth("ok" + learning.Gap + "thanks") {
		t.Error("what was taken out makes chatter worth something")
	}
}
