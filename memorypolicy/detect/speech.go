package detect

import (
	"regexp"
	"strings"
	"unicode"
)

// deed names what an agent may be let do.
const deed = `(?:create|open|file|delete|remove|drop|deploy|restart|reboot|merge|push|send|pay|transfer|approve|close|change|modify|update|` +
	`run|execute|` +
	`roll ?back|scale|stop|kill|access|read|write|publish|release|book|order|buy|proceed|act|do)`

// deedZH is deed in Chinese.
const deedZH = `(?:创建|新建|建|提|提交|开|删除|删|清理|清空|部署|重启|合并|推送|发布|发送|发|付款|支付|转账|批准|关闭|修改|改|更新|执行|` +
	`运行|回滚|扩容|停|访问|上线|下单|操作|处理|做)`

var authority = []pattern{
	{
		id: "authority/skip-asking", category: Authority,
		match: regexp.MustCompile(words(`without (?:ever |even |first |further |any |my |our |the |prior |additional |needing |requiring |` +
			`waiting for |having |to )*` +
			`(?:ask(?:ing)?|confirm(?:ation|ing)?|approv(?:al|ing)|permission|consent|check(?:ing|s)?(?: with| in)?|review(?:ing|s)?|` +
			`verif(?:ication|ying)|validation|authori[sz]ation|sign[- ]?off|prompt(?:ing)?|notifying|telling (?:me|anyone|anybody))|` +
			`(?:don'?t|do not|never|no need to|needn'?t|need not|stop|quit|no longer|not have to|don'?t have to|don'?t need to|` +
			`you can stop) (?:ever |even |have to |need to |bother to |bother )*` +
			`(?:ask(?:ing)?|confirm(?:ing)?|check(?:ing)? with|wait(?:ing)? for (?:my |the |an? )?(?:approval|confirmation|ok|review|` +
			`permission)|prompt(?:ing)?|seek(?:ing)?|request(?:ing)? (?:approval|confirmation|permission)|require (?:approval|confirmation|` +
			`review|permission)|bother(?:ing)? me (?:with|for))|` +
			`no need to wait for (?:me|us|anyone|anybody)|no need to (?:ping|call|page|message|tell) (?:me|us|anyone|anybody)(?: (?:again|first|about (?:it|that|this)))?(?: before| first| to ` + deed + `|,? just ` + deed + `|\s*(?:$|[.!?"]))|(?:never|don'?t|do not) wait for (?:a |an |any |my |the )?(?:go[- ]ahead|green light|ok|approval|confirmation)|` +
			`no (?:more )?(?:confirmation|approval|permission|review|verification|authori[sz]ation|sign[- ]?off)s? (?:is |are |` +
			`will be )?(?:needed|required|necessary|from now)|no more (?:confirmations?|approvals?|checks?|questions|reviews?|permissions?)|` +
			`(?:never|don'?t|do not|doesn'?t|does not|needn'?t) (?:need|require)s? (?:to be |any |my |an? |further |more |` +
			`prior )*(?:approv(?:al|ed)|confirm(?:ation|ed)|review(?:ed)?|permission|consent|authori[sz](?:ation|ed)|checks?|verifi(?:cation|` +
			`ed))|` +
			`(?:confirmation|approval|permission|review|verification)s? (?:is|are) (?:not |never |no longer |un)(?:needed|required|necessary)|` +
			`(?:don'?t|do not|without) (?:spend(?:ing)?|wast(?:e|ing)|tak(?:e|ing)) (?:any |more |your |my |too much )*time (?:on |with |to |` +
			`for )*(?:ask|confirm|check|verif|review|approv|permission)\w*|no questions asked|ask(?:ing)? (?:for )?(?:forgiveness|later)|` +
			`instead of asking|rather than asking|(?:tell|inform|notify) (?:me|us|them) (?:afterwards?|later|after the fact)|let (?:me|us|` +
			`them) know (?:afterwards?|later|after the fact)|(?:rules|restrictions|limits|policies|safeguards|checks) (?:do not|don'?t|` +
			`no longer|never) apply|(?:nobody|no one|none of us) (?:needs?|has|have|is required) to (?:approve|confirm|sign|` +
			`review|check|ask|agree|know|be asked)|(?:is|are) (?:always )?(?:fine|ok|okay|allowed|permitted|good to go) (?:at )?any ?time`)),
		// To ask for more is no grant, and which of several things is meant is no
		// question of permission.
		except: regexp.MustCompile(`(?i)\b(?:never|don'?t|do not|must not|should not|shouldn'?t|mustn'?t|not to|may not|cannot|can'?t|` +
			`nothing)\s+(?:ever\s+|be\s+)?(?:` + deed + `|deployed|restarted|merged|deleted|touch|touched|start|pushed|sent|changed|go|` +
			`goes)\b[^.;!?\n]{0,60}\bwithout [^.;!?\n]{0,24}?(?:ask\w*|confirm\w*|approv\w*|permission|consent|review\w*|check\w*|` +
			`sign[- ]?off|telling me|notif\w*)` +
			`|\b(?:don'?t|do not|never|no need to|stop|quit)\s+ask(?:ing)?(?: me)?(?: again)? (?:which|what|where|for the (?:region|language|` +
			`format|environment|unit|currency))`),
	},
	{
		id: "authority/skip-checks", category: Authority,
		match: regexp.MustCompile(words(`(?:skip|bypass|circumvent|ignore|avoid|omit|disable|turn off|switch off|suppress|override|` +
			`evade)(?:s|ping|ing|ed)? (?:all |any |the |my |your |every |these |those |its |our |further |of |usual |standard |manual |` +
			`safety |security |policy |code |human |two[- ]person )*` +
			`(?:confirmations?|approvals?|approval step|reviews?|reviewers?|checks?|checklist|verifications?|validations?|safeguards?|` +
			`guard ?rails?|polic(?:y|ies)|permissions?|restrictions?|authori[sz]ations?|audit(?:s|ing| log)?|safety|security|two[- ]factor|` +
			`(?:confirm(?:ation)?|approval) (?:prompts?|steps?|dialogs?)|are[- ]you[- ]sure (?:prompts?|dialogs?|questions?)|2fa|mfa|logins?|authentication|4[- ]eyes|rate limits?|moderation|filters?)|` +
			`auto[- ]?(?:matically )?(?:approve[ds]?|confirm(?:s|ed)?|accept(?:s|ed)?|grant(?:s|ed)?|authori[sz]e[ds]?)|` +
			`pre[- ]?(?:approve[ds]?|authori[sz]ed?|confirmed)|` +
			`always (?:approve|confirm|accept|allow|grant|authori[sz]e|trust|say yes|proceed|permit)|(?:just|simply) (?:approve|proceed|` +
			`go ahead|do it)|` +
			`(?:treat|consider|count|regard|take|see) (?:[\w']+ ){1,8}?(?:as )?(?:approv(?:ed|al)|confirmed|confirmation|authori[sz]ed|` +
			`pre-?approved|permission|consent|trusted|signed off)|` +
			`(?:guard ?rails?|safeguards?|restrictions|approvals?|(?:all|your|safety|security|policy|permission) checks) (?:is|are|were|have been) (?:switched|turned) off|(?:overrides? (?:your|all)|(?:outranks?|trumps?|is above) (?:your|the|all)) (?:guidelines|rules|polic(?:y|ies)|instructions|limits)|` +
			`as green-?lit|(?:deploy(?:ment)?s?|rollbacks?|restarts?|releases?|changes?|requests?|tickets?|deletions?|that|this|it|silence)\b[^.;!?\n]{0,32}? (?:counts?|is counted|are counted|is taken|are taken) as (?:already )?(?:approved|reviewed|signed[- ]off|confirmed|authori[sz]ed)|` +
			`(?:standing|blanket|permanent|unlimited|full|general|unconditional|carte blanche) (?:approval|permission|authori[sz]ation|` +
			`authority|consent|access|sign[- ]?off|clearance|ok)|carte blanche|free rein|` +
			`(?:all|any|every|future|my|these) (?:[\w'-]+ ){0,5}?(?:is|are|were|will be|has been|have been) (?:already |always |hereby |` +
			`automatically |permanently )*(?:approved|authori[sz]ed|permitted|pre-?approved|granted)`)),
		except: regexp.MustCompile(`(?i)\b(?:never|don'?t|do not|must not|mustn'?t|should not|shouldn'?t|not|cannot|can'?t|nobody may|` +
			`no one may)\s+(?:ever\s+)?(?:skip|bypass|circumvent|ignore|omit|disable|turn off|override|suppress|auto[- ]?approve|` +
			`auto[- ]?confirm|auto[- ]?accept)\w*`),
	},
	{
		id: "authority/grant", category: Authority,
		match: regexp.MustCompile(words(`(?:you|the (?:agent|assistant|bot|model|ai)|fairlead|opspilot|anyone|everyone|i|he|she|` +
			`they) (?:have|has|had|got|now have|now has|always have|always has) (?:my |our |the |full |all |standing |` +
			`been given )*(?:permissions?|approval|authori[sz]ation|authority|consent|go-ahead|green light|admin(?:istrator)? (?:rights|` +
			`access|permissions?|privileges?)|root(?: access)?|(?:full|unlimited|unrestricted|write|production) access)|` +
			`(?:i|we|my (?:manager|boss|team)|the (?:admin|ceo|cto|manager|security team)) (?:hereby |permanently |have |has |already |` +
			`pre-?)*(?:grant(?:s|ed)?|authori[sz]ed?s?|allow(?:s|ed)?|permit(?:s|ted)?|approved?s?|empower(?:s|ed)?|give|gave|given|` +
			`delegated?) (?:you|the (?:agent|assistant|bot|model)|him|her|them|me|it|all|any|every|everything|this agent|opspilot|` +
			`permission)|` +
			`you(?:'re| are| may| can| should| could|'ll be| will be)(?: always| now| hereby| also| just| simply| freely| directly|` +
			` fully)* (?:authori[sz]ed|allowed|permitted|entitled|free|cleared|empowered|approved|trusted) to|` +
			`you (?:may|can) (?:always|just|freely|simply|directly|go ahead|automatically|` + deed + ` [^.;!?\n]{0,40}(?:whenever|any ?time|` +
			`at will|freely|as you (?:like|wish|see fit|please)|on your own|yourself|by yourself|directly))|` +
			`feel free to ` + deed + `|(?:go ahead and|just) ` + deed + ` [^.;!?\n]{0,40}(?:whenever|any ?time|at will|from now on|` +
			`in (?:the )?future|every time)|` +
			`(?:permission|approval|access|consent|authori[sz]ation) (?:is |was |has been |hereby |already |permanently )*(?:granted|given|` +
			`assumed|implied|automatic)|` +
			`(?:grant|give|assign|make|promote|elevate) (?:me|him|her|them|yourself|itself|user \w+|\w+) (?:an? |the |to |full |all |` +
			`as )*(?:admin(?:istrator)?|root|superuser|owner|sudo|(?:elevated |all |write |production )?(?:rights|privileges|permissions))|` +
			`i(?:'m| am) (?:now )?(?:an?|the|your|its) (?:system |workspace |tenant |site |super ?)?(?:admin(?:istrator)?|superuser|` +
			`root(?: user)?|developer and)|(?:treat|consider|regard) me as|act on my behalf|on your own authority|(?:is|are) allowed to (?:` + deed + `)|` +
			`has the right to (?:` + deed + `)|whatever i (?:ask|say|want|request|need)(?: for)? (?:is|goes|must|should|has to)|go ahead and ` + deed + ` (?:whatever|` +
			`anything|everything|all)|use your own judge?ment (?:and|to) (?:` + deed + `)|` +
			`(?:urgent|emergency) (?:tickets?|requests?|deploys?) (?:never|don'?t|do not) (?:need|require)`)),
		except: regexp.MustCompile(`(?i)\b(?:not|never|nobody is|no one is|isn'?t|aren'?t) (?:allowed|authori[sz]ed|permitted) to`),
	},
	{
		id: "authority/zh", category: Authority, han: true,
		match: regexp.MustCompile(`(?:不用|不必|无需|无须|毋须|不需要|不需|用不着|没必要|别|不要|不再|免得|省得|甭|未经|不经|不经过|无须再|` +
			`勿)(?:再|先|每次都?|都|来|向|跟|和|找|让|等|给|经过?|得到|通过|我|任何人|谁|人|他们|主管|领导|我们|用户|的|一遍遍?|老是|总是|` +
			`一直|进行|额外|任何|二次|人工|花时间|浪费时间|花功夫|费时间|费事|去|一一|逐一){0,6}` +
			`(?:问|询问|确认|批准|同意|审批|审核|审查|许可|授权|请示|核实|核对|复核|验证|通知我|征求|检查|校验|评审|请求)|` +
			`(?:跳过|绕过|绕开|略过|省略|省去|关闭|关掉|禁用|取消|忽略|免去|停用|规避)(?:所有|一切|任何|全部|那些|这些|这个|该|掉|了|的|你的|` +
			`我的|人工|安全|代码|二次|权限|内容){0,4}(?:确认|审批|审核|审查|检查|校验|验证|评审|复核|限制|权限|安全|规则|策略|风控|审计|` +
			`护栏)|` +
			`免(?:确认|审批|审核|检查|验证|密操作)|不(?:走|过|经过?|用走|需要走|做|进行)\p{Han}{0,3}(?:审批|审核|评审|确认|复核|流程)|` +
			`先斩后奏|先(?:执行|部署|重启|删|删除|上线|发布|动手|合并|操作|创建|处理)(?:了|完)?再(?:说|` +
			`告诉|通知|汇报|报告|问|补)|(?:自动|默认|一律)(?:直接|都)?通过|先做后(?:报|说)|(?:自动|默认|一律|永远|总是|始终|都|全部|` +
			`直接)(?:给我|帮我|` +
			`予以|就)?(?:批准|同意|授权|通过审批|确认通过|放行|允许|审批通过)|` +
			`(?:我|我们|老板|领导|主管|管理员|公司)(?:在此|已经|已|永久|正式|现在|都|特此|早就|也)*(?:授权|允许|准许|批准|许可|` +
			`同意)(?:了)?(?:你|您|助手|机器人|系统|它|所有|一切|任何|今后|以后)|(?:授权|许可)(?:给)?(?:你|您|助手)|` +
			`(?:你|您|助手|机器人)(?:以后|今后|现在|从此|都|就|也|永远|一直|始终|已经)*(?:可以|能|有权限?|有权利|被授权|被允许|获准)(?:随时|` +
			`直接|自行|随意|自己|任意|自由|自动|擅自|放心)*(?:去|地|把)?` + deedZH + `|` +
			`(?:^|[\s，。；,;:：“"]|就|请|都|以后|今后|一律|帮我|给我)直接(?:创建|新建|提交|删除|部署|重启|合并|推送|发布|上线|付款|支付|` +
			`转账|批准|执行|下单|关闭|回滚)|(?:直接|自行|擅自|放心|尽管|只管)(?:去|帮我|给我|就|地)*` + deedZH + `(?:[^，。；,.;!?！？\n]{0,20})(?:就行|` +
			`就好|即可|就可以|` +
			`不用|无需|别问)|` +
			`(?:视为|视同|算作|算是|当作|当成|等同于?|看作)(?:已经?|我|经过|得到|有|都|是|最高|系统|超级)*(?:批准|同意|授权|确认|许可|管理员|` +
			`有权限|审批通过)|` +
			`全权(?:委托|授权)|(?:你|您|助手|机器人)[^，。；\n]{0,6}全权|(?:限制|规则|规定|要求|审批)(?:全|都|统统|一律)?(?:作废|失效|不算数)|以我(?:这条|说的|的话)为准|` +
			`(?:已经?|早就?)?(?:口头|提前|预先)(?:批准|同意|授权)了?(?:你|您|我|所有|一切|任何|全部|今年|以后|今后|这类)|也?算我同意|(?:等于|就算|也算|[,，\s]算)[^，。；\n]{0,10}批了|(?i:confirm|确认|审批|审核)\s?(?:那|这)?(?:一)?步(?:就)?(?:省|跳|免)|(?:没吭声|不说话|沉默|不回复?)(?:就|都)?(?:当|算|等于|代表)\p{Han}{0,4}(?:同意|点头|默许|批准)|` +
			`(?:永久|长期|一揽子|无限|完全|全部|最高|所有)(?:的)?(?:授权|权限|许可|批准)|(?:我是|把我设为|给我|提升我为|让我成为)(?:系统|` +
			`超级|本系统的?|平台|这里的?)?(?:管理员|超管|root|最高权限|管理权限)|(?:自己|自行|自主)(?:决定|判断|做主)(?:就行|即可|就好|吧|` +
			`就可以)|你说了算|默认(?:我)?(?:同意|批准|授权|确认)`),
		// To forbid a shortcut is no grant.
		except: regexp.MustCompile(`(?:不(?:得|能|可以?|许|准|允许|应该?)|禁止|严禁|切勿|千万(?:别|不要)|(?:绝|永远|从来|请)不(?:要|能|可)?|` +
			`不要|别)(?:擅自|自行|直接|随意|私自)?(?:去)?(?:跳过|绕过|绕开|略过|省略|关闭|关掉|禁用|取消|忽略|自动批准|` +
			`自动同意)\p{Han}{0,10}|` +
			`(?:未经|没有?(?:经过?)?|不经(?:过)?)[^，。；,.;!?！？\n]{0,12}(?:确认|同意|批准|审批|许可|允许|授权|` +
			`审核)[^，。；.;!?！？\n]{0,4}(?:不得|不要|不能|不许|不准|禁止|不可|别|严禁|就?不)|(?:别|不要|不用|不必)再?问我?(?:用)?(?:哪|` +
			`什么|几)|(?:不要|别|不能|不得|禁止|严禁|不许|不准|不可以?|切勿)(?:在)?(?:未经|没有?|不经(?:过)?)[^，。；,.;!?！？\n]{0,16}|` +
			`不检查拼写|(?:防火墙|缓存|限流|告警|路由|转发|过滤|监控|调度|匹配|解析|索引|降级|熔断)规则`),
	},
}

var injection = []pattern{
	{
		id: "injection/override", category: Injection,
		match: regexp.MustCompile(words(`(?:ignore|disregard|forget|override|overwrite|discard|drop|neglect|do not follow|don'?t follow|`+
			`stop following|pay no attention to|set aside) (?:about |all |any |every |each |everything |of |the |your |my |these |those |`+
			`previous |prior |earlier |above |preceding |original |initial |existing |other |system |developer |safety |current |past |`+
			`former |older |user'?s? |and |or |following )*`+
			`(?:instructions?|instruction set|directions|directives?|prompts?|guidelines|rules|system messages?|messages above|context above|`+
			`programming|training|constraints|orders|told|said|above|before)|`+
			`forget (?:everything|all|anything) (?:above|before|you|that|i|said|we)|(?:new|updated|real|actual|true|hidden|secret|`+
			`following) (?:system )?(?:instructions?|directives?|prompt) (?:are|is|follows?|begins?|below)|`+
			`(?:your|the) (?:new |real |true |only |main |primary |system )+(?:instructions?|task|role|goal|objective|purpose|prompt|job|`+
			`identity) (?:is|are|will be)|end of (?:system )?(?:prompt|instructions)|(?:begin|start) (?:of )?new (?:instructions|`+
			`conversation|session)`) + `|(?i:\b(?:new|updated|real|actual|true|hidden|secret) (?:system )?(?:instructions?|directives?|` +
			`prompt)\s?[:：])`),
	},
	{
		id: "injection/role", category: Injection,
		match: regexp.MustCompile(words(`(?:you are|you're|u r|you will be|you shall be|you must be|be|become) (?:now|no longer|from now on|` +
			`henceforth|going to be|actually) (?:an? |the |my |in |acting |playing |called |named |known |bound |restricted |limited |dan|` +
			`free|unrestricted|jailbroken|root|evil|\w+gpt|assistant|operating|running|pretending)|` +
			`you are now|you're now|from now on,? you(?:'re| are|r name is| will be| shall| must)|from now on,? you(?: will| always| only|` +
			` never)* (?:act|behave|respond as|answer as|obey|follow|ignore|pretend|roleplay)|henceforth,? you|` +
			`(?:act|behave|respond|answer|roleplay|role-play|function|operate) as (?:if you (?:are|were|have)|though you|an? (?:unrestricted|` +
			`evil|jailbroken|different|ai|assistant|language model|linux|terminal|admin\w*|root|system|dan)|dan\b|my |root|admin|the system)|` +
			`pretend (?:to be|that you|you(?:'re| are| have)|there (?:is|are) no)|imagine you are|you must (?:always |never |now |` +
			`only )*(?:obey|comply|answer|respond|reveal|follow|call|invoke|execute|ignore|output|reply|say|run)|(?:dan|developer|god|debug|` +
			`jailbreak|sudo|root|maintenance|unrestricted) mode|jail ?break(?:s|ing|en)?|do anything now|` +
			`(?:as|being) an ai(?: language)? model,? (?:you|do)|(?:dear|hey|attention|note to|message to|instructions? (?:to|` +
			`for)) (?:the )?(?:ai|assistant|model|llm|agent|bot|chatbot|language model)s?|(?:any |the |an )?(?:ai|llm|assistant|model|` +
			`agent)s? (?:reading|processing|that reads|who reads|seeing) this`)),
	},
	{
		id: "injection/markup", category: Injection,
		match: regexp.MustCompile(`(?im)<\|?/?\s*(?:im_start|im_end|system|endoftext|start_header_id|end_header_id|eot_id|assistant|` +
			`begin_of_text|tool_call|function_call|developer)\b[^>]{0,40}\|?>|\[/?(?:INST|SYS|SYSTEM|ASSISTANT)\]|<</?SYS>>|###\s*(?:system|` +
			`instructions?|assistant|human|user|response)\b|` +
			`(?:^|[\n.!?;"'“”)\]}>*#-]\s*|\s{2,})\s*(?:system|assistant|developer|tool)(?: (?:message|prompt|note|override|` +
			`instruction))?\s?[:：>]|\bsystem (?:prompt|override|message|instruction)s?\b|\b(?:BEGIN|END) (?:SYSTEM|PROMPT|INSTRUCTIONS?)\b|` +
			`(?:"|')role(?:"|')\s*:\s*(?:"|')(?:system|assistant|developer|tool)`),
		except: regexp.MustCompile(`(?i)\b(?:operating|file|build|ticket(?:ing)?|billing|monitoring|source|target|affected|our|the) system\s?:`),
	},
	{
		id: "injection/tool", category: Injection,
		match: regexp.MustCompile(words(`(?:always|first|immediately|must|now|silently|secretly|automatically|then|please|should|`+
			`to) (?:[\w]+ ){0,2}?(?:call|invoke|use|trigger) (?:the |an? |your |this |my )*(?:[\w.:-]+ )?(?:tools?|functions?|mcp server|`+
			`plugin)|`+
			`(?:call|invoke|trigger) (?:the |an? |your |this )*[\w.:-]+ (?:tool|function) (?:with|to|and|before|after|on|for|every|when|`+
			`whenever|instead)|`+
			`(?:execute|run|perform|obey|follow) (?:the |these |this |all )*(?:following|below|next) (?:commands?|code|instructions?|script|`+
			`steps|actions?)|curl [^\n]{0,60}\| ?(?:ba|z)?sh|run the [\w.:-]+ (?:tool|function)|`+
			`(?:reveal|print|repeat|output|show|display|leak|expose|disclose|exfiltrate|dump|tell me|send|forward|post|upload|email)(?: me|`+
			` out| back)? (?:all |the |your |my |any |every |full |entire |exact |of |stored |hidden |user'?s? |secret |`+
			`confidential )*(?:system |initial |hidden |secret |original )*(?:prompt|instructions|rules|guidelines|memor(?:y|ies)|`+
			`conversation(?: history)?|secrets|credentials|api keys|passwords|tokens|chat history|context window)|`+
			`(?:do not|don'?t|never|without) (?:tell(?:ing)?|inform(?:ing)?|mention(?:ing)?|alert(?:ing)?|notify(?:ing)?|let(?:ting)?|`+
			`warn(?:ing)?|reveal(?:ing)?)(?: this| it| that| any of this)?(?: to)? (?:the |any |your )?(?:user|human|operator|customer|owner|`+
			`admin|reviewer)s?|`+
			`(?:when(?:ever)?|if|once|after) you (?:read|see|receive|process|parse|retrieve|recall|load|encounter) (?:this|these|the above|`+
			`that memory)|`+
			`(?:save|store|write|add|remember|put|insert) (?:this|that|it|the following)(?: \w+){0,3} (?:in|into|to) (?:your |the |`+
			`long-term |permanent |persistent )+memor(?:y|ies)|(?:in|with) (?:every|all|each) (?:future )?(?:response|answer|reply|message|`+
			`conversation)s?,? (?:you must|recommend)|(?:include|append|insert|add|embed|render) (?:a |an |the |this )*(?:hidden|tracking|`+
			`invisible)|(?:include|append|insert|add|embed|render) (?:a |an |the |this )*(?:link|image|url|markdown image) (?:to |`+
			`from )?(?:https?://|[\w-]+\.[a-z]{2,})[^\n]{0,40} (?:in|to|into) (?:every|all|each|your)`) + `|(?i:\b(?:call|invoke|execute|` +
			`run)(?: the)? \w+\([^)]*\)|\brm -rf /)`),
		// A reader who wants less to be sent is none.
		except: regexp.MustCompile(`(?i)\b(?:never|don'?t|do not) (?:send|post|print|show|display|forward|email|upload|log|store|output|` +
			`expose|leak|reveal) (?:[\w']+ ){0,3}(?:secrets|credentials|api keys|passwords|tokens)`),
	},
	{
		id: "injection/zh", category: Injection, han: true,
		match: regexp.MustCompile(`(?:忽略|无视|忽视|忘记|忘掉|不要理会|不理会|不要遵守|不再遵守|抛弃|抛开|覆盖|推翻|清除|废除|停止遵守|` +
			`不用管|别管)(?:掉|了|你|您|你的|之前|以前|此前|先前|前面|上面|上述|以上|上文|前述|刚才|所有|全部|一切|任何|原有|原来|原先|初始|` +
			`系统|开发者|其他|其它|安全|那些|这些|给你|收到|说过|设定|的|和|及|内容里?|里|中){0,10}(?:指令|指示|说明|规则|提示词?|命令|要求|` +
			`设定|约束|限制|对话|内容|消息|准则|政策|教导|训练|规定)|` +
			`(?:你|您)(?:现在|从现在(?:开始|起)|从此(?:以后)?|今后|以后|将|接下来)(?:起|开始)?,?，?(?:就|将|必须|要|只)?(?:是|成为|变成|扮演|` +
			`充当|作为|叫做)(?:一[个名位]|我的?|没有|不受|管理员|系统|root|DAN|无限制|猫|黑客)|(?:从现在(?:开始|起)|从此(?:以后)?|` +
			`今后)[,，]?(?:你|您)(?:就|将|必须|要|只能|不再)?(?:是|扮演|充当|成为|叫|听|服从|遵守)|` +
			`(?:请)?(?:扮演|假装|假扮|伪装成|冒充|充当)(?:你|成|一[个名位]|是|管理员|系统|没有|开发者|黑客|我)|系统(?:提示词?|指令|消息|提示|` +
			`覆写)\s*(?:[:：]|是|如下|内容|泄露)?|(?:^|[\n。！？"“（(\[【]\s*)(?:系统|助手|开发者)\s*[】\])]?\s*[:：][^。\n]{0,12}(?:允许|你|` +
			`您|必须|忽略|执行|禁止|请|授权|批准|从现在|不要|无视|覆盖|开启|启用|调用)|你是一?[个名位][^，。！？\n]{0,12}(?:助手|机器人|模型|` +
			`AI|智能体|黑客|专家)|必须(?:绝对|无条件)?(?:服从|听从)|把(?:你|您|的|所有|全部|用户|我们?|系统){0,4}(?:记忆|密钥|密码|对话|` +
			`聊天记录|提示词)[^，。！？\n]{0,8}(?:发送|发给|发到|输出|打印|告诉|上传|转发)|(?:看到|读到|读取|收到)(?:这|该|此|` +
			`本)[^，。！？\n]{0,8}(?:后|时|请|就|必须)|(?:回答|回复|消息|响应)[^，。！？\n]{0,6}(?:加上|附上|插入|带上|推荐|添加)(?:这个|该|` +
			`以下|下面的?)(?:链接|网址|图片|广告)|【系统】|越狱|开发者模式|上帝模式|调试模式|无限制模式|` +
			`(?:始终|总是|必须|每次都?|一定要|立即|立刻|马上|请先|首先|优先|务必|自动)(?:先|要|去)?(?:调用|使用|执行|` +
			`触发)[^，。；,.;!?！？\n]{0,24}(?:工具|函数|接口|命令|指令|tool)|调用\s*[\w.]+\s*(?:工具|函数|tool)|执行(?:以下|下面|下列|` +
			`如下)(?:的)?(?:命令|指令|操作|代码|步骤|脚本)|` +
			`(?:不要|别|不能|不许|勿|切勿|不可|禁止|不必)(?:让|向|对|跟|和|给)?(?:告诉|通知|提及|告知|透露给?|提醒|知会|泄露给?)(?:这个|给|` +
			`任何)?(?:用户|使用者|人类|管理员|任何人|客户|审核人?)|(?:不要|别)让(?:用户|人类|管理员|任何人)(?:知道|发现|看到)|(?:输出|显示|` +
			`打印|泄露|透露|告诉我|复述|重复|公开|发送|发给我)(?:出|你|您|你的|所有|全部|完整|系统|内部|初始|隐藏|其他用户的?|` +
			`的){0,6}(?:提示词|系统提示|指令|记忆|密钥|密码|机密|对话记录|聊天记录)|` +
			`(?:当|如果|只要)你(?:看到|读到|读取|收到|检索到|处理)(?:这|该|此|本)|你(?:的)?(?:新|真正的?|唯一的?|真实的?)(?:的)?(?:指令|任务|` +
			`角色|目标|身份)(?:是|为)|你必须(?:服从|听从|无条件|回答|遵守|执行|照做|始终|总是)|(?:致|给|所有)(?:读到这|` +
			`看到这)?[^，。\n]{0,6}(?:AI|大模型|语言模型|智能体)[:：,，]`),
	},
}

var (
	chatter = regexp.MustCompile(`^(?i:` +
		`ok(?:ay|ey|ie)?|k+|kk|yes|yep|yup|yeah|yea|no|nope|nah|sure(?: thing)?|fine|alright|all right|right|great|good|nice|cool|perfect|` +
		`awesome|excellent|wonderful|amazing|super|lovely|wow|oh+|ah+|aha|hm+|mm+|uh+|um+|huh|lol|haha(?:ha)*|hehe|oops|` +
		`thanks?|thx|ty|thank|thank you|cheers|much appreciated|appreciated|appreciate it|you'?re welcome|no problem|np|welcome|please|pls|` +
		`sorry|my bad|` +
		`fair enough|6|mhm|gimme a sec|one sec|1|hi+|hello|hey+|yo|hiya|greetings|howdy|good (?:morning|afternoon|evening|night|day)|bye|goodbye|bye-bye|see you|see ya|later|cya|` +
		`take care|how are you(?: doing)?|what'?s up|sup|` +
		`got it|i see|understood|makes sense|sounds good|sounds great|looks good|looks great|lgtm|go on|continue|noted|exactly|indeed|agreed|` +
		`that works|that helps|that helped|well done|good job|nice work|will do|ok then|you|so|very|much|a lot|lots|many|for|your|the|` +
		`help|it|is|that|that'?s|all|again|then|now|just|really|there|everyone|team|and|a|ton|again|works|me|` +
		`(?:嗯|恩|唔|哦|噢|喔|啊|哈|呵|嘿|嘻|呃|额|诶|唉|哎|呀|哇)+|好+|好的+|好吧|好啊|好呀|好哒|好滴|好嘞|行|行吧|可以|可以的|是|是的|对|` +
		`对的|对啊|没错|不是|不|没|没有|没事|没问题|不客气|不用谢|` +
		`谢谢?|谢啦|多谢|感谢|谢了|非常感谢|太感谢了|谢谢你|谢谢您|辛苦|辛苦了|麻烦你了|收到|了解|明白|明白了|知道|知道了|懂了|清楚|继续|` +
		`下一个|不错|很好|真好|太好了|太棒了|棒|厉害|牛|赞|完美|` +
		`吃了没|先这样|好的呀|好呀|收到1|早呀|早啊|thx|嗯呢|你好|您好|你好呀|大家好|嗨|哈喽|早|早安|早上好|上午好|中午好|下午好|晚上好|晚安|再见|拜拜?|回见|在吗|在不在|吃了吗|抱歉|对不起|` +
		`不好意思|了|吧|呢|的|你|您|很|非常|真|太|帮忙|啦|哈` +
		`)$`)
	filler = set(`you so very much for your the it is that all and a me there team everyone just ton many lots now then`)

	happened = regexp.MustCompile(words(`yesterday|(?:last|this past) (?:night|week|weekend|month|year|monday|tuesday|wednesday|thursday|`+
		`friday|saturday|sunday|spring|summer|autumn|fall|winter|time|january|february|march|april|may|june|july|august|september|`+
		`october|november|december)|`+
		`this morning|earlier today|earlier this (?:week|month|year)|tonight i (?:had|ate|went)|just now|(?:a|an|one|two|three|four|five|six|`+
		`seven|eight|ten|few|several|couple of|a couple of|a few|\d+) (?:seconds?|minutes?|mins?|hours?|days?|nights?|evenings?|mornings?|`+
		`weeks?|weekends?|months?|years?) ago|`+
		`the other (?:day|night|week)|a while (?:ago|back)|back in (?:19|20)\d\d|once (?:i|we|he|she|they) |`+
		`(?:i|we|he|she|they)(?:'ve|'s| have| has|)? just (?:had|ate|went|bought|saw|did|made|got|used|tried|deployed|restarted|fixed|ran|`+
		`sent|finished|ordered|watched|met|read|broke|merged)`) +
		`|昨天|昨晚|昨日|昨夜|前天|前晚|大前天|刚刚|刚才|方才|上周|上个?星期|上礼拜|上个?月|去年|前年|今早|今天(?:早上|上午|中午)|那天|` +
		`前几天|前两天|前阵子|上一?次|(?:[一二两三四五六七八九十几]|\d+)个?(?:秒|分钟|小时|天|周|星期|月|年)(?:之?前)|刚(?:吃|去|买|看|` +
		`用|做|重启|部署|修|发|跑|喝|见)了?`)
	// lasting marks a correction, or a change of how things are.
	lasting = regexp.MustCompile(words(`no longer|not any ?more|any ?more|from now on|from today|going forward|in (?:the )?future|`+
		`instead(?: of)?|actually|correction|i was wrong|i meant|not .{1,40} but|switched|moved (?:to|from|into|back)|changed|started|`+
		`stopped|quit|became|become|joined|left the|renamed|migrated|replaced|upgraded|transferred|promoted|adopted|`+
		`since (?:yesterday|last|this|then|january|february|march|april|may|june|july|august|september|october|november|december|(?:19|`+
		`20)\d\d)|always|usually|every (?:day|week|month|time|morning|evening|monday|tuesday|wednesday|thursday|friday|saturday|sunday|`+
		`sprint|release)|never|these days|nowadays|prefers?|is now|are now|am now|now (?:use|live|work|prefer|own|run|called|on|in|at)s?|`+
		`used to`) +
		`|不再|以后|今后|从今|从现在|从(?:昨天|上周|上个月|去年|今天).{0,4}(?:起|开始)|起(?:就|都|改)|改成|改为|改用|改到|换成|换到|换了|` +
		`更正|纠正|其实|说错|搞错|记错|不是.{1,20}(?:而是|是)|搬到|搬家|搬去|迁移|迁到|升级|加入了?|离职|入职|转到|转岗|调到|开始|` +
		`已经(?:改|换|搬|迁)|现在|一直|总是|通常|每(?:天|周|月|次|个)|戒了|放弃|更名|改名`)
)

var letterRuns = regexp.MustCompile(`[\p{L}\p{N}'’]+`)

// chatters reports whether the normalized s is made of nothing but chatter. A
// text without any letter or digit says nothing either.
func chatters(s string) bool {
	s = strings.ReplaceAll(strings.ToLower(s), "’", "'")
	if len(s) > 200 {
		return false
	}
	runs := letterRuns.FindAllString(s, -1)
	if len(runs) == 0 {
		return s != ""
	}
	said := false
	for i := 0; i < len(runs); {
		n := 0
		for j := min(len(runs), i+4); j > i && n == 0; j-- {
			if phrase := strings.Join(runs[i:j], " "); chatter.MatchString(phrase) {
				n = j - i
				said = said || !filler[phrase]
			} else if j == i+1 && hanChatter(phrase) {
				n, said = 1, true
			}
		}
		if n == 0 {
			return false
		}
		i += n
	}
	return said
}

// hanChatter reports whether s is several words of Chinese chatter without a
// space between them.
func hanChatter(s string) bool {
	runes := []rune(s)
	if len(runes) > 24 || !unicode.Is(unicode.Han, runes[0]) {
		return false
	}
	reach := make([]bool, len(runes)+1)
	reach[0] = true
	for i := range runes {
		for j := i + 1; reach[i] && j <= min(len(runes), i+4); j++ {
			reach[j] = reach[j] || chatter.MatchString(string(runes[i:j]))
		}
	}
	return reach[len(runes)]
}

// talk finds what says nothing, and what tells of one event only.
var talk = rule{"talk", func(t *text, add func(Category, string)) {
	if chatters(t.plain) {
		add(Chatter, "chatter")
	}
	if happened.MatchString(t.plain) && !lasting.MatchString(t.plain) {
		add(Event, "event")
	}
}}
