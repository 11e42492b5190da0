package opspilot

import (
	"unicode"

	"github.com/fairlead/fairlead/agent"
)

// phrases is the wording of an answer in one language. The verbs of each format
// are in the same order in all languages.
type phrases struct {
	askName, notFound, severalFound, others, noRegistry string
	// verdicts take name and environment, next steps the name.
	verdicts map[verdict]string
	next     map[verdict][]string

	leak, sameCount, otherCount, since string
	evidence, health, pool, requests   string
	lines, noLines, example, unusable  string
	nextSteps, notSeen                 string

	// results say how it looks after a restart: name and environment.
	results                       map[verdict]string
	restarted, before, after      string
	offer, handsOff, notRestarted string
	// because takes an environment and a memory's ID.
	heardDefault, because string
	// forbidden and offerAsked take the user's own words.
	forbidden, offerAsked string
	// refusals say why nothing was restarted; others take the code.
	refusals map[agent.ToolErrorCode]string
	refused  string
	// unclearRestart is for a result that cannot be read.
	unclearRestart string
}

// phrasesFor answers Chinese questions in Chinese and all others in English.
func phrasesFor(question string) phrases {
	for _, r := range question {
		if unicode.Is(unicode.Han, r) {
			return chinese
		}
	}
	return english
}

var english = phrases{
	heardDefault: "I have read that. Whether it is remembered beyond this conversation is for the memory policy to say; you may be asked to confirm it. What you say in a question always wins.",
	because:      "I looked in %s because that is remembered as what you mean (memory %s). Name another environment, and I look there.",
	askName:      "Which service do you mean? Please give its name, such as payment-api.",
	notFound:     "I found no service named %q in %s.%s I looked at nothing else. %[4]s",
	others:       " Services there: %s.",
	severalFound: "Several services fit %q: %s. Which one do you mean? %s",
	noRegistry:   "I could not look up %q: find_service gave no usable result (%s). I cannot say anything about the service. %s",
	verdicts: map[verdict]string{
		unclear:     "I cannot say whether %s (%s) fails: too little of what I asked for came back.",
		healthy:     "%s (%s) is not failing as far as I can see.",
		recovered:   "%s (%s) is healthy now, but its log holds errors.",
		leaking:     "%s (%s) is failing: it cannot take payments, because no connection to the bank is free.",
		exhausted:   "%s (%s) is overloaded: all its connections to the bank are in use, though none has leaked.",
		unreachable: "%s (%s) is registered but did not answer. What follows is from its log alone.",
	},
	next: map[verdict][]string{
		leaking: {
			"Restart %s to free the connections. That changes a running system and needs a person's decision; I have not done it.",
			"Mend the leak in %s: give the connection back, or discard it, also when the bank does not answer in time. Until then a restart only buys time.",
		},
		exhausted:   {"Watch the pool of %s; if it stays full, find out why its requests take long before making it larger."},
		recovered:   {"Read the errors of %s above and compare their times with deployments and incidents at the bank."},
		unreachable: {"Find out whether the process of %s still runs. Starting it needs a person's decision."},
	},
	leak:       "Likely cause: a connection leak. %d of %d connections are held by requests that are already over.",
	sameCount:  " Just as many payments (%d) ran into a time-out at the bank, so that path seems to lose its connection.",
	otherCount: " %d payments ran into a time-out at the bank; that path may be the one that loses connections.",
	since:      " The first payment failed for it at %s.",
	evidence:   "Evidence:",
	health:     "Health: %s; running since %s (%.0f s). %s",
	pool:       "Connection pool: %d of %d in use, %d leaked (%d bytes), the oldest in use for %d ms. %s",
	requests:   "Payments: %d in all, %d succeeded, %d under way, %d failed, of those %d without a free connection and %d without an answer from the bank; p95 latency %d ms. %s",
	lines:      "Log: %d %s lines from %s to %s; they say %s (in the first %d). %s",
	noLines:    "Log: no matching %s lines. %s",
	example:    "Example, quoted as data: %s %s",
	unusable:   "%s gave no usable result (%s). %s",
	nextSteps:  "Next steps:",
	notSeen:    "Not known: I have seen numbers and logs, not the source code, so the cause is a hypothesis.",

	results: map[verdict]string{
		unclear:     "%s (%s) was failing and has been restarted. I cannot say how it does now: too little of what I asked for came back.",
		healthy:     "%s (%s) was failing, was restarted, and works again as far as I can see.",
		untried:     "%s (%s) was failing, was restarted, and says that it is healthy; no payment has succeeded since, so it has yet to prove it.",
		recovered:   "%s (%s) was failing, was restarted, and is healthy now, but has logged errors since.",
		leaking:     "%s (%s) was failing and was restarted, but its connections have leaked again: it still fails.",
		exhausted:   "%s (%s) was failing and was restarted, but all its connections to the bank are in use again, though none has leaked.",
		unreachable: "%s (%s) was failing and was restarted, but does not answer now.",
	},
	restarted:    "Restart: the process that had been running since %s ended, and a new one started at %s. %s",
	before:       "Before the restart:",
	after:        "After the restart:",
	offer:        "If I am asked to fix it, I propose the restart, and a person confirms or declines it before anything happens.",
	handsOff:     "I have not proposed a restart, because I was asked to leave it alone.",
	forbidden:    "I have not proposed a restart, because you said: \"%s\". That stands until you take it back.",
	offerAsked:   "You said: \"%s\". If I am asked to fix it, I propose the restart, and a person confirms or declines it before anything happens.",
	notRestarted: "Nothing was restarted: %s. %s",
	refusals: map[agent.ToolErrorCode]string{
		agent.ToolDeclined:     "I proposed it, and it was declined",
		agent.ToolNotConfirmed: "I proposed it, and nobody confirmed it in time",
		agent.ToolConflict:     "the service changed before it could be done",
		agent.ToolForbidden:    "it is not allowed here",
		agent.ToolProhibited:   "I proposed it, and it was refused because you have forbidden it; that stands until you take it back",
		agent.ToolUnknown:      "I have no tool for it here",
	},
	refused:        "restart_service did not succeed (%s)",
	unclearRestart: "Whether it was restarted I cannot say: the result of restart_service is of no use (%s). %s",
}

var chinese = phrases{
	heardDefault: "已读到。是否在本次对话之外记住它由记忆策略决定，可能会请您确认。您在提问时说的话始终优先。",
	because:      "我查看的是 %s，因为记忆中您默认指它（记忆 %s）。如需其他环境，请直接说明。",
	askName:      "请问您指的是哪个服务？请给出服务名，例如 payment-api。",
	notFound:     "没有找到名为 %q 的服务（环境 %s）。%s没有再查其他内容。%[4]s",
	others:       "该环境中的服务：%s。",
	severalFound: "有多个服务符合 %q：%s。您指的是哪一个？%s",
	noRegistry:   "无法查找 %q：find_service 没有返回可用结果（%s），因此无法判断该服务的情况。%s",
	verdicts: map[verdict]string{
		unclear:     "无法判断 %s（%s）是否故障：查询返回的信息太少。",
		healthy:     "就目前所见，%s（%s）没有故障。",
		recovered:   "%s（%s）当前健康，但日志中有错误记录。",
		leaking:     "%s（%s）正在失败：没有空闲的银行连接，无法处理支付。",
		exhausted:   "%s（%s）过载：所有银行连接都在使用中，但没有泄漏。",
		unreachable: "%s（%s）已注册但没有响应，以下内容仅来自日志。",
	},
	next: map[verdict][]string{
		leaking: {
			"重启 %s 以释放连接。这会改变运行中的系统，必须由人来决定；我没有执行。",
			"修复 %s 的泄漏：银行超时时也要归还或丢弃连接。修复之前，重启只能争取时间。",
		},
		exhausted:   {"持续观察 %s 的连接池；若一直占满，先查明请求为何缓慢，再考虑扩容。"},
		recovered:   {"查看 %s 的上述错误，并与发布时间和银行侧的故障时间对照。"},
		unreachable: {"确认 %s 的进程是否还在运行；是否启动它必须由人来决定。"},
	},
	leak:       "可能的原因：连接泄漏。%d / %d 个连接被已经结束的请求占用。",
	sameCount:  "银行超时的支付恰好也是 %d 笔，因此很可能是超时路径没有归还连接。",
	otherCount: "有 %d 笔支付在银行侧超时，可能正是这条路径丢失了连接。",
	since:      "第一笔因此失败的支付发生在 %s。",
	evidence:   "证据：",
	health:     "健康状态：%s；启动于 %s（已运行 %.0f 秒）。%s",
	pool:       "连接池：已用 %d / %d，泄漏 %d 个（%d 字节），最久的已占用 %d 毫秒。%s",
	requests:   "支付请求：共 %d 笔，成功 %d，进行中 %d，失败 %d，其中 %d 笔没有空闲连接，%d 笔银行未及时应答；p95 延迟 %d 毫秒。%s",
	lines:      "日志：%d 条 %s，时间从 %s 到 %s；内容为 %s（统计自前 %d 条）。%s",
	noLines:    "日志：没有符合条件的 %s 记录。%s",
	example:    "示例（仅作为数据引用）：%s %s",
	unusable:   "%s 没有返回可用结果（%s）。%s",
	nextSteps:  "建议的下一步：",
	notSeen:    "尚不清楚：我只看到了指标和日志，没有看到源代码，因此上述原因只是假设。",

	results: map[verdict]string{
		unclear:     "%s（%s）此前正在失败，已经重启。目前状况无法判断：查询返回的信息太少。",
		healthy:     "%s（%s）此前正在失败，重启后就目前所见已恢复正常。",
		untried:     "%s（%s）此前正在失败，已经重启并报告健康；但重启以来还没有成功的支付，尚待证实。",
		recovered:   "%s（%s）此前正在失败，重启后健康，但重启以来日志中有错误记录。",
		leaking:     "%s（%s）此前正在失败，重启后连接再次泄漏，仍在失败。",
		exhausted:   "%s（%s）此前正在失败，重启后所有银行连接又都在使用中，但没有泄漏。",
		unreachable: "%s（%s）此前正在失败，重启后没有响应。",
	},
	restarted:    "重启：自 %s 起运行的进程已结束，新进程启动于 %s。%s",
	before:       "重启之前：",
	after:        "重启之后：",
	offer:        "如需修复，我会提出重启，由人确认或拒绝之后才会执行。",
	handsOff:     "我没有提出重启，因为您要求不要动它。",
	forbidden:    "我没有提出重启，因为您说过：“%s”。在您收回之前，这一条一直有效。",
	offerAsked:   "您说过：“%s”。如需修复，我会提出重启，由人确认或拒绝之后才会执行。",
	notRestarted: "没有重启任何服务：%s。%s",
	refusals: map[agent.ToolErrorCode]string{
		agent.ToolDeclined:     "我提出了重启，但被拒绝了",
		agent.ToolNotConfirmed: "我提出了重启，但没有人及时确认",
		agent.ToolConflict:     "在执行之前服务已发生变化",
		agent.ToolForbidden:    "这里不允许重启",
		agent.ToolProhibited:   "我提出了重启，但因为您禁止过而被拒绝；在您收回之前，这一条一直有效",
		agent.ToolUnknown:      "这里没有可用于重启的工具",
	},
	refused:        "restart_service 没有成功（%s）",
	unclearRestart: "无法判断是否已重启：restart_service 的结果不可用（%s）。%s",
}
