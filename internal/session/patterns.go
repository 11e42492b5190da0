package session

import "regexp"

var (
	itemPattern = regexp.MustCompile(`^ *(?:[-*+] +|[-*•·‣◦●○] *|\(?\d{1,3}(?:[.)] +|[)、])|[a-z][.)] +|[一二三四五六七八九十]{1,3}[、.)]|\([一二三四五六七八九十\d]{1,3}\))`)
	// endPattern: the line ends with its sentence.
	endPattern = regexp.MustCompile(`[。!?:;.]["”’」』)\]]*$`)
	// goesOnPattern: the line ends in the middle of a sentence.
	goesOnPattern = regexp.MustCompile(`(?:[,、(/-]|\b(?:not|never|n't|don't|to|or|and|the|a|an|of|in|on|by|with|without|any|be|get|please|under|unless|until|before|except)|不要|别|勿|禁止|不得|不准|不许|不能|千万|未经|除非|或|和|以及|并)$`)
	// abbreviationPattern: the point ends no sentence.
	abbreviationPattern = regexp.MustCompile(`(?:^|[ (])(?:e\.g|i\.e|vs|cf|approx|resp|incl|mr|mrs|ms|dr)\.$`)
	// exceptionPattern begins what belongs to the sentence before.
	exceptionPattern = regexp.MustCompile(`^(?:unless|except|only if i|only when i|without (?:asking|my|explicit|prior)|除非|除了)`)
)

// What a user says of others' words, and what makes them the user's own. The
// text before or after a quotation is searched.
var (
	reportPattern = regexp.MustCompile(`\b(?:say|says|said|saying|tell|tells|told|ask|asks|asked|write|writes|wrote|written|read|reads|state|states|stated|claim|claims|claimed|report|reports|reported|show|shows|showed|shown|display|displays|displayed|print|prints|printed|log|logs|logged|error|warning|message|output|response|answer|answers|answered|reply|replies|replied|doc|docs|documentation|runbook|manual|wiki|comment|comments|label|title|button|banner|prompt|phrase|word|words|string|text|line|ticket|email|mail|post|tweet|quote|quotes|quoted|mean|means|meant|meaning|called|named|titled|appear|appears|appeared|according|translate|translation|sign|policy|page|alert|dialog|tooltip|placeholder)\b|说|写|显示|提示|报错|回复|告诉|问|喊|叫|道|文档|日志|标题|备注|注释|按钮|弹窗|警告|规定|意思|翻译|这句|短语|字样|关键词|页面|邮件|公告|手册|标语`)
	ownPattern    = regexp.MustCompile(`\b(?:i|we)(?:'m| am| have| already| just| clearly| once)* (?:say|said|saying|tell|told|telling|repeat|mean|meant|insist|wrote)\b|\bmy (?:rule|order|instruction|message|words?)\b|我(?:们|刚才|之前|已经|都|早就|是)*(?:说|讲|告诉|强调|重申|要求|规定)`)
	// withdrawPattern makes a quotation that which is taken back.
	withdrawPattern = regexp.MustCompile(`\b(?:withdraw|withdrew|revoke|lift|rescind|cancel|drop|forget|ignore|take back|took back)\b|撤回|收回|取消|解除|撤销|忽略`)
)

var (
	// enConsentPattern: conditional on the user's consent.
	enConsentPattern = regexp.MustCompile(`\b(?:without|w/o) (?:first |explicitly |ever |even |actually )*(?:asking|telling|informing|notifying|consulting|checking (?:with|first|in)|confirming (?:with|first)|talking to|letting (?:me|us)|running (?:it|this|that|them) (?:by|past) (?:me|us)|warning (?:me|us)|(?:getting|having|obtaining|receiving|seeking|requesting|waiting for) (?:\w+ )?(?:\w+ )?(?:approval|permission|consent|confirmation|authori[sz]ation|ok|okay|go-ahead|sign-?off)|(?:my |our |the |user's |user |human |any |an |a |explicit |prior |express |written |clear |proper |due )*(?:approval|permission|consent|confirmation|authori[sz]ation|agreement|blessing|knowledge|sign-?off|say-so|say|word|go-ahead|ok|okay)\b|me\b|us\b|being (?:asked|told|requested))` +
		`|\bunless (?:and until )?(?:i|we|the user)\b|\bunless (?:you )?(?:first |explicitly |specifically |expressly |otherwise )*(?:ask|asked|get my|got my|have my|told|instructed|approved|confirmed|authori[sz]ed|requested|permitted|(?:are|were|have been|is|was) (?:explicitly |specifically |expressly )?(?:asked|told|instructed|approved|confirmed|authori[sz]ed|requested|permitted))` +
		`|\buntil (?:i|we|the user)\b|\buntil you hear from (?:me|us)\b|\buntil (?:you )?(?:first )?(?:ask|asked|get my|got my|have my|have asked|told|instructed|approved|confirmed|authori[sz]ed|(?:are|were|have been|is|was) (?:asked|told|instructed|approved|confirmed|authori[sz]ed))` +
		`|\bbefore (?:you )?(?:first )?(?:ask|asking|check with|checking with|consult|consulting|tell|telling|inform|informing|notify|notifying|confirm with|confirming with|talk to|talking to) (?:me|us)\b|\bbefore (?:you )?(?:get|getting|have|having|obtain|obtaining) (?:my|our)\b` +
		`|\b(?:i|we) (?:did not|didn't|have not|haven't|do not|don't|never) (?:explicitly )?(?:ask|asked|say|said|approve|approved|confirm|confirmed|agree|agreed|tell|told|request|requested|authori[sz]e|authori[sz]ed|sign|signed)\b|\bbehind my back\b` +
		`|\b(?:ask|check with|consult|tell|confirm with|talk to) (?:me|us)\b.{0,40}\b(?:first|before)\b|\bexcept (?:when|if) (?:i|we)\b|\bexcept with (?:my|our)\b|\bonly (?:with|after|when|if|once) (?:my|our|i|we)\b`)
	// enBeforePattern: before the user has agreed. "Before I go, never ..." is no
	// such condition when it stands apart; inside of the clause any is.
	enBeforePattern = regexp.MustCompile(`\bbefore (?:i|we)(?:'ve| have)? (?:say|said|tell|told|approve|approved|confirm|confirmed|agree|agreed|allow|allowed|ok|okay|give|given|ask|asked|authori[sz]e|authori[sz]ed|permit|request|consent|explicitly|sign|decide|answer|reply|respond|checked)\b`)
	enBeforeAny     = regexp.MustCompile(`\bbefore (?:i|we)\b`)
	// enAlonePattern, after the negation: not on its own initiative.
	enAlonePattern = regexp.MustCompile(`\b(?:by yourself|by yourselves|on your own|yourself|yourselves|automatically|autonomously|unprompted|unasked|unilaterally|proactively|of your own accord|on your own initiative)\b`)
	enRelative     = regexp.MustCompile(`\b(?:that|which|who|because|since)\b`)
	// enApartPattern begins a clause that is nothing but a condition.
	enApartPattern = regexp.MustCompile(`^(?:and |or |so |please |always |just |at least )*(?:unless|until|without|before|except|only|ask|check with|consult|tell me|confirm with|talk to)\b`)

	zhAgree          = `(?:同意|允许|批准|确认|许可|授权|首肯|点头|指示|命令|吩咐|审批|审核|发话|开口|过目)`
	zhConsentPattern = regexp.MustCompile(`未经(?:过)?(?:我|本人|用户|人工|任何人|事先|明确|书面|[^,。;!?]{0,8}` + zhAgree + `)|不经(?:过)?(?:我|本人|用户|人工)|(?:没|没有|未)(?:经过|得到|获得|征得|取得)?(?:我|我们|本人|用户|人工|任何人)(?:的|事先|明确|书面)*` + zhAgree + `|(?:没|没有|未)(?:经过|得到|获得|征得|取得)(?:任何|事先|明确|书面)*` + zhAgree + `|没有(?:任何|事先|明确|书面)*(?:同意|允许|批准|许可|授权|审批)` +
		`|(?:没|没有|不|未)(?:有)?(?:告诉|通知|问|跟|和|经|经过|征求|征得|得到|请示|告知|知会)(?:过)?(?:我|用户)` +
		`|除非(?:是|得到|经过|获得|有|征得|事先|先|经)*(?:我|用户|本人|人工)|除非[^,。;!?]{0,8}` + zhAgree +
		`|(?:先|要|得|必须|须|需|需要|都要|务必|一定)(?:先|来|跟|和|向|找|再)*(?:问|请示|征求|征得|告诉|告知|通知|知会|询问|咨询|联系|汇报|确认|报告|经过|经|等|得到|由|让)(?:一下|下|过|问|问|一声)*(?:我|用户|人工)` +
		`|(?:先|要|得|必须|须|需|需要|都要|务必|一定)(?:先)?(?:跟|和|向|找|与)(?:我|用户)(?:本人)?(?:的)?(?:商量|请示|汇报|说|打|讲|确认|沟通)` +
		`|等(?:到)?我|直到我|不打(?:个)?招呼|我(?:们)?不(?:点头|发话|开口|同意|批准)|背着我|瞒着我|经(?:过)?(?:我|用户)(?:的|本人|明确|书面)*` + zhAgree +
		`|我(?:们)?(?:还)?(?:没|没有|未|不)?(?:明确)?(?:` + zhAgree + `|说|回复|通知|告诉|下令|让|叫|要求)(?:了|过|你|可以|话)*(?:之前|以前|前)|我(?:们)?(?:没|没有|未)(?:明确)?(?:` + zhAgree + `|说|让|叫|要求)` +
		`|我(?:` + zhAgree + `|说)(?:了|过|可以|行)*(?:之后|以后|后)?(?:再|才)`)
	zhAlonePattern = regexp.MustCompile(`^(?:再|又|去|给我|随便|你|您|再次|老是|总是|总|就)*(?:自己|自行|擅自|私自|自动|自主|主动|自作主张|偷偷|自动地|悄悄)|擅自|私自|自作主张`)
	zhApartPattern = regexp.MustCompile(`^(?:并且|而且|而|且|也|都|请|你|务必|一律)*(?:除非|直到|要|需|必须|须|得|先|等|未经|没|不经|在我|我没|我未|我不|我同意|我确认|我批准|我说|务必|一定|经我|经过我)`)
)
