package detect

import "regexp"

// Health and finance are found by words that hardly mean anything else. Words of
// operations that sound like them ("health check", "technical debt") are taken
// out first.
var personal = []pattern{
	{
		id: "health/en", category: Health,
		match: regexp.MustCompile(words(`hiv(?:[ -]?positive)?|cancer|carcinoma|leuk(?:a)?emia|lymphoma|tumou?rs?|chemo(?:therapy)?|radiotherapy|`+
			`diabet(?:es|ic)|insulin|metformin|hypertension|high blood pressure|(?:my|his|her|their|a|low) blood pressure|blood (?:type|`+
			`sugar|test|group)s?|cholesterol|`+
			`asthma(?:tic)?|epilep(?:sy|tic)|seizures?|arthritis|hepatitis|tuberculosis|covid(?:-?19)?|malaria|herpes|syphilis|`+
			`gonorrh(?:o)?ea|chlamydia|stds?|`+
			`depression|(?:clinically|severely) depressed|antidepressants?|bipolar|schizophreni(?:a|c)|psychosis|psychiatrists?|psychiatric|`+
			`psychotherap(?:y|ist)|`+
			`(?:my|his|her|a|see|seeing) therapist|in therapy|ptsd|adhd|autis(?:m|tic)|asperger'?s?|ocd|anxiety (?:disorder|attacks?)|`+
			`panic (?:attacks?|disorder)|`+
			`(?:have|has|from|my|his|her|severe) anxiety|suicid(?:e|al)|self[- ]harm|anorexi(?:a|c)|bulimi(?:a|c)|eating disorder|rehab|`+
			`alcoholi(?:c|sm)|drug addict(?:ion)?|addicted to|`+
			`alzheimer'?s?|dementia|parkinson'?s|multiple sclerosis|migraines?|heart (?:attack|disease|condition|failure|surgery)|`+
			`had a stroke|pacemaker|`+
			`pregnan(?:t|cy)|miscarriage|abortion|ivf|fertility treatment|infertil(?:e|ity)|menopause|`+
			`allerg(?:y|ies|ic)|celiac|coeliac|lactose intoleran(?:t|ce)|crohn'?s|ulcers?|`+
			`diagnosed (?:with|as)|(?:my|his|her|their|medical|a) diagnosis|medications?|on meds|my meds|prescriptions?|prescribed|`+
			`antibiotics|ibuprofen|paracetamol|`+
			`xanax|prozac|zoloft|lithium carbonate|adderall|ritalin|oxycodone|opioids?|painkillers|statins|viagra|sertraline|lexapro|`+
			`(?:had|have|having|my|his|her|after|knee|heart|brain|back) surgery|(?:my|take|taking|on) pills|(?:broke|broken|fractured|`+
			`sprained) (?:my|his|her|a|an)? ?(?:leg|arm|wrist|ankle|foot|hip|rib|nose|hand|finger|shoulder|collarbone|back)|(?:have|has|had|`+
			`got|with) (?:the flu|a fever|a cold|pneumonia|bronchitis)|(?:i'm|i am|he is|she is|he's|she's) (?:sick|ill)|chronic (?:pain|`+
			`illness|disease|fatigue|condition)|medical (?:record|history|condition|leave|exam)s?|`+
			`sick leave|disab(?:led|ility) (?:benefits?|pension|status|since)|(?:my|his|her|a) disability|wheelchair|hearing aids?|dialysis|`+
			`kidney (?:disease|failure|stones?)|biops(?:y|ies)|stage (?:one|two|three|four|i{1,3}|iv|[1-4]) (?:cancer|disease)|(?:i'm|i am|i was|he is|he's|he was|she is|she's|she was|been|went|(?:put|puts|got) (?:me|him|her)) on (?:lithium|insulin|beta blockers|ssris?|steroids|morphine|methadone)|is on (?:lithium|insulin|beta blockers|ssris?|morphine|methadone)|(?:my|in|to|after|couples|group|speech|cognitive) therapy|`+
			`sober (?:for|since)|aa meetings?|my shrink|`+
			`hospitali[sz]ed|terminally ill|ill with|suffer(?:s|ing)? from|insomnia|(?:cardi|onc|neur|gynaec|gynec|ur|rheumat|endocrin|`+
			`dermat|haemat|hemat|nephr)ologists?|physiotherap(?:y|ist)|therapy sessions?`) + `|\bAIDS\b`),
		except: regexp.MustCompile(`(?i)seizures? of|\b(?:cron|(?:script|scheduler|proxy|service|system|bash|excel|jenkins|kafka|redis)s?(?: (?:is|has been|runs))?) on (?:steroids|lithium|morphine)|allerg(?:y|ic) to (?:meetings|yaml|jira|email|slack|java|surprises)|(?:suffer(?:s|` +
			`ing)?) from (?:lag|latency|timeouts?|outages?|slow|high load|flak\w+|packet loss|race)`),
	},
	{
		id: "health/zh", category: Health, han: true,
		match: regexp.MustCompile(`抑郁|焦虑症|焦虑发作|双相|躁郁|精神分裂|精神病|精神科|心理医生|心理咨询|心理治疗|强迫症|恐慌症|惊恐发作|` +
			`自杀|自残|厌食症|暴食症|` +
			`癌|肿瘤|白血病|化疗|放疗|糖尿病|胰岛素|高血压|低血压|血压|血糖|血型|血脂|胆固醇|心脏病|心梗|冠心病|中风|脑梗|脑出血|` +
			`艾滋|(?i:\bHIV\b)|乙肝|丙肝|肝炎|肝硬化|肺结核|结核病|梅毒|淋病|性病|疱疹|新冠|哮喘|癫痫|痛风|关节炎|甲亢|甲减|肾病|透析|尿毒症|` +
			`过敏|怀孕|孕期|孕妇|预产期|流产|堕胎|试管婴儿|不孕|月经|更年期|确诊|诊断(?:出|为|是|书|结果)|被诊断|病历|病史|病情|病假|` +
			`吃药|服药|用药|药量|处方|抗生素|止痛药|安眠药|抗抑郁|降压药|手术|感冒|发烧|发高烧|骨折|肺炎|生病|住院|复诊|(?:心内|肿瘤|妇|泌尿|` +
			`神经内|内分泌|皮肤)科|体检报告|残疾|自闭症|` +
			`戒酒|互助会|活检|穿刺|药物治疗|服用|多动症|失眠|阿尔茨海默|老年痴呆|帕金森|偏头痛|慢性病|戒毒|酗酒|酒精依赖`),
		except: regexp.MustCompile(`存活检|客服用|诊断(?:出|为|是|结果)?(?:故障|问题|日志|接口|服务|告警|网络)|故障诊断\p{Han}?`),
	},
	{
		id: "finance/en", category: Finance,
		match: regexp.MustCompile(words(`salar(?:y|ies)|(?:my|his|her|their|hourly|monthly|annual|net|gross) (?:wages?|income|pay(?:check|` +
			`cheque)?|earnings)|paychecks?|take[- ]home pay|takes? home (?:about |only |around )?[$€£¥]?\d[\d,.]*|` +
			`(?:i|he|she|we) (?:earns?|makes?) (?:about |around |only |over )?[$€£¥]?\d[\d,.]*\s?(?:k|usd|eur|gbp|rmb|cny|dollars|euros|` +
			`a (?:month|year)|per (?:month|year|hour))|` +
			`(?:bank|savings|checking|current) (?:account|balance)s?|account balances?|overdraft|net worth|(?:my|our|his|her|life|personal|` +
			`family) savings|` +
			`mortgages?|(?:my|his|her|our|credit card|student|gambling|personal) debts?|in debt|debts? of [$€£¥]?\d[\d,.]*|(?:my|our|his|her|` +
			`a|student|car|home|personal|bank|payday|pay off the|paying off the|pay back the) loans?|invested (?:about |` +
			`over )?[$€£¥]?\d[\d,.]*k?|owes? (?:the bank|money|[$€£¥]?\d)|credit (?:score|rating|history|limit|report)|` +
			`bankrupt(?:cy)?|foreclosure|insolven(?:t|cy)|tax returns?|taxable income|(?:my|his|her) tax(?:es)?|401\(?k\)?|pension|` +
			`inheritance|inherited|alimony|child support|` +
			`(?:my|his|her|our) (?:investments?|portfolio|stocks?|shares|brokerage|crypto|bitcoin)|stock options|severance pay|` +
			`unemployment benefits|food stamps|payday|(?:my|his|her|their) (?:total )?(?:comp(?:ensation)?|bonus|base pay) (?:is|was|of)|(?:my|his|her|their) (?:total )?(?:package|base) (?:is|was|of) (?:about |around |roughly )?(?:[$€£¥]?\d+k|[$€£¥]?\d{1,3}(?:,\d{3})+|[$€£¥]?\d{5,6}|\d{2,3} base)|` +
			`\d+k? (?:stashed|saved|put|tucked) away|\d{2,3}k? base\b[^.!?\n]{0,24}bonus`)),
		except: regexp.MustCompile(`(?i)(?:tech(?:nical)?|code|design|test|security|documentation)[- ]debts?|\b(?:our|the) debts?\b[^.!?\n\d$€£¥]{0,40}\b(?:module|code ?base|code|repo|repository|service|legacy|refactor\w*|tests?)\b|(?:salary|payroll|pension|` +
			`loans?|mortgages?|credit)[- _](?:service|api|module|team|page|table|database|db|repo(?:sitory)?|report|app|queue|job|pipeline|` +
			`cluster|dashboard|project)s?\b`),
	},
	{
		id: "finance/zh", category: Finance, han: true,
		match: regexp.MustCompile(`工资(?:[^卡]|$)|工资卡[^，。；\n]{0,8}?(?:里|有|到账|余额|发了|[\d一二两三四五六七八九十百几]\s?[万千百块])|薪水|薪资|薪酬|月薪|年薪|底薪|时薪|年终奖|(?:我的?|他的?|她的?|家庭|个人|月|年|税后|税前)收入|负债|` +
			`欠债|欠款|欠(?:银行|别人|了)|债务|房贷|车贷|贷款|还贷|按揭|网贷|借钱|` +
			`账户余额|银行余额|卡里(?:还)?有|存款|积蓄|银行账户|银行账号|银行卡|信用卡(?:额度|账单|欠)|信用分|征信|破产|个人所得税|个税|` +
			`公积金|社保(?:基数|缴)|养老金|退休金|遗产|赡养费|抚养费|` +
			`花呗|借呗|白条|没还清|还欠着[^，。；\n]{0,10}?(?:钱|[\d一二两三四五六七八九十百几]\s?[万千百块]|[\d百千万]\s?元)|(?:我的?|他的?|她的?|家庭|个人|净)资产|炒股|股票(?:亏|赚|账户|持仓)|基金持仓|理财产品|赌债|亏了\d|赚了?\d`),
		except: regexp.MustCompile(`(?:花呗|借呗|白条)的?(?:服务|系统|接口|模块|网关|团队|项目|页面|支付接口)|技术(?:债务|负债|债)|(?:工资卡?|薪资|薪酬|贷款|公积金|征信)(?:服务|系统|模块|接口|团队|项目|报表|数据库|` +
			`页面|集群|组)`),
	},
}
