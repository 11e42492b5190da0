package memorypolicy_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/memorypolicy"
)

// LTM2: the evidence is in the message, byte for byte and in whole words.
func TestLTM2Evidence(t *testing.T) {
	t.Parallel()
	const value = `{"item":"Chinese food","sentiment":"likes"}`
	for name, tt := range map[string]struct {
		quote, message, rule string
		want                 memorypolicy.Outcome
	}{
		"the whole message":    {"I love Chinese food", "I love Chinese food", "evidence.quoted", store},
		"a part":               {"love Chinese food", "Hi! I love Chinese food, you know.", "evidence.quoted", store},
		"in Chinese":           {"我爱吃 Chinese food", "对了，我爱吃 Chinese food。", "evidence.quoted", store},
		"other case":           {"i love chinese food", "I love Chinese food", "evidence.not_quoted", reject},
		"other space":          {"I love  Chinese food", "I love Chinese food", "evidence.not_quoted", reject},
		"full-width":           {"I love Ｃhinese food", "I love Chinese food", "evidence.not_quoted", reject},
		"invented":             {"I love Chinese food", "Where is the log?", "evidence.not_quoted", reject},
		"pieced together":      {"I love Chinese food", "I love tea. Chinese food is served at noon.", "evidence.not_quoted", reject},
		"begins within a word": {"love Chinese food", "I glove Chinese food", "evidence.not_quoted", reject},
		"ends within a word":   {"I love Chinese food", "I love Chinese foods-fairs and foodies: I love Chinese foodstuff", "evidence.not_quoted", reject},
		"everywhere":           {"love Chinese food", strings.Repeat("love Chinese food. ", 9), "evidence.everywhere", reject},
		"not UTF-8":            {"I love Chinese food\xff", "I love Chinese food\xff", "evidence.text", reject},
		"too long":             {strings.Repeat("I love Chinese food ", 103), strings.Repeat("I love Chinese food ", 103), "evidence.size", reject},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect(t, quoting(t, "preference.food", value, tt.quote, tt.message), tt.want, tt.rule)
		})
	}
	// A quote is checked whoever brings it.
	c := from(t, agent.SourceTrustedTool, "fact.project_codename", `"atlas"`)
	c.Quote, c.MessageID, c.Message = "it is atlas", "msg-1", "it is zeus"
	expect(t, c, reject, "evidence.not_quoted")
}

// LTM4: what a model claims must be what the user said.
func TestLTM4Grounded(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		key, value, message, rule string
		want                      memorypolicy.Outcome
	}{
		"likes":                   {"preference.food", `{"item":"Chinese food","sentiment":"likes"}`, "I love Chinese food", "grounded", store},
		"hates":                   {"preference.food", `{"item":"Chinese food","sentiment":"dislikes"}`, "I hate Chinese food", "grounded", store},
		"does not like":           {"preference.food", `{"item":"Chinese food","sentiment":"dislikes"}`, "I don’t like Chinese food", "grounded", store},
		"turned round":            {"preference.food", `{"item":"Chinese food","sentiment":"likes"}`, "I don’t like Chinese food", "grounded.sentiment", reject},
		"never liked":             {"preference.food", `{"item":"Chinese food","sentiment":"likes"}`, "I never really liked, and do not like Chinese food", "grounded.sentiment", reject},
		"another item":            {"preference.food", `{"item":"Thai food","sentiment":"likes"}`, "I love Chinese food", "grounded.item", reject},
		"under way, unsaid":       {"task.current", `{"name":"capacity report","state":"in_progress"}`, "I owe Ben the capacity report", "grounded.unsaid", confirm},
		"done, unsaid":            {"task.current", `{"name":"capacity report","state":"done"}`, "I owe Ben the capacity report", "grounded.state", reject},
		"not under way":           {"task.current", `{"name":"capacity report","state":"in_progress"}`, "I finished the capacity report", "grounded.state", reject},
		"a way in":                {"task.current", `{"name":"laptop setup","state":"in_progress"}`, "I am working on the laptop setup, sign in as ops-eu-2", "grounded.way_in", confirm},
		"a ticket is no way in":   {"task.current", `{"name":"login page","state":"in_progress"}`, "I'm working on the login page, ticket OPS-1423.", "grounded", store},
		"a duration is no way in": {"task.current", `{"name":"login page","state":"in_progress"}`, "I'm working on the login page, it is due in 3 days.", "grounded", store},
		"a product is no way in":  {"task.current", `{"name":"VPN migration","state":"in_progress"}`, "I'm working on the VPN migration to wireguard2.", "grounded", store},
		"a count is no way in":    {"task.current", `{"name":"ssh key rotation","state":"in_progress"}`, "I'm working on the ssh key rotation for 12 hosts.", "grounded", store},
		"工单 is no way in":         {"task.current", `{"name":"密码重置页面","state":"in_progress"}`, "我正在做密码重置页面，工单 1423。", "grounded", store},
		"天 is no way in":          {"task.current", `{"name":"登录页改版","state":"in_progress"}`, "我正在做登录页改版，还要 3 天。", "grounded", store},
		"a PIN may be a way in":   {"task.current", `{"name":"laptop","state":"in_progress"}`, "I'm working on the laptop, it unlocks with 739164", "grounded.way_in", confirm},
		"until is not blocked":    {"task.current", `{"name":"database migration","state":"in_progress"}`, "I'm working on the database migration until Friday.", "grounded", store},
		"no feeling":              {"preference.food", `{"item":"Chinese food","sentiment":"likes"}`, "Chinese food is served at noon", "grounded.sentiment", reject},
		"喜欢":                      {"preference.food", `{"item":"中餐","sentiment":"likes"}`, "我最喜欢中餐了", "grounded", store},
		"不喜欢":                     {"preference.food", `{"item":"中餐","sentiment":"dislikes"}`, "我不喜欢中餐", "grounded", store},
		"不喜欢 turned round":        {"preference.food", `{"item":"中餐","sentiment":"likes"}`, "我不喜欢中餐", "grounded.sentiment", reject},
		"苹果":                      {"preference.food", `{"item":"苹果","sentiment":"likes"}`, "用户喜欢苹果", "grounded.others", confirm},
		"translated":              {"preference.food", `{"item":"Chinese food","sentiment":"likes"}`, "我喜欢中餐", "grounded.item", reject},
		"language":                {"preference.language", `"de"`, "Always answer in German", "grounded", store},
		"another language":        {"preference.language", `"fr"`, "Always answer in German", "grounded.value", reject},
		"instead of":              {"preference.language", `"en"`, "Always answer in German instead of English", "grounded.value", reject},
		"中文":                      {"preference.language", `"zh-CN"`, "以后请用中文回答", "grounded", store},
		"不要用英文":                   {"preference.language", `"en"`, "以后不要用英文，用中文回答", "grounded.value", reject},
		"用中文":                     {"preference.language", `"zh-CN"`, "以后不要用英文，用中文回答", "grounded", store},
		"production":              {"preference.default_environment", `"production"`, "default to production from now on", "grounded", confirm},
		"生产":                      {"preference.default_environment", `"production"`, "以后默认用生产环境", "grounded", confirm},
		"预生产 is not 生产":           {"preference.default_environment", `"production"`, "以后默认用预生产环境", "grounded.value", reject},
		"预生产":                     {"preference.default_environment", `"staging"`, "以后默认用预生产环境", "grounded", confirm},
		"not staging":             {"preference.default_environment", `"staging"`, "from now on use production, not staging", "grounded.value", reject},
		"non-production":          {"preference.default_environment", `"production"`, "default to non-production from now on", "grounded.value", reject},
		"once":                    {"preference.default_environment", `"production"`, "restart it in production", "standing", reject},
		"only this time":          {"preference.default_environment", `"production"`, "just this time default to production", "standing", reject},
		"这次":                      {"preference.default_environment", `"production"`, "这次默认用生产环境", "standing", reject},
		"language for once":       {"preference.language", `"de"`, "Answer in German", "standing.ask", confirm},
		"two values":              {"preference.reply_style", `"brief"`, "I always like short answers with bullet points", "grounded.ambiguous", confirm},
		"a question":              {"preference.food", `{"item":"Chinese food","sentiment":"likes"}`, "Do I like Chinese food?", "grounded.question", reject},
		"一个问题":                    {"preference.food", `{"item":"中餐","sentiment":"likes"}`, "我喜欢中餐吗？", "grounded.question", reject},
		"a polite wish, asked":    {"preference.food", `{"item":"sushi","sentiment":"likes"}`, "Can you tell me whether I like sushi?", "grounded.question", reject},
		"how it was":              {"profile.home_city", `"Berlin"`, "I used to live in Berlin", "grounded.past", reject},
		"how it was and is":       {"profile.home_city", `"Paris"`, "I used to live in Berlin, now I live in Paris", "grounded.past", confirm},
		"a condition":             {"preference.food", `{"item":"sushi","sentiment":"likes"}`, "If I am hungry I like sushi", "grounded.doubt", confirm},
		"a mention":               {"profile.home_city", `"Paris"`, "I am flying to Paris", "grounded.mention", confirm},
		"for tonight":             {"preference.food", `{"item":"pizza","sentiment":"likes"}`, "I love pizza tonight", "grounded.once", confirm},
		"would like":              {"preference.food", `{"item":"pizza","sentiment":"likes"}`, "I would like a pizza", "grounded.sentiment", reject},
		"a right":                 {"profile.role", `"approver"`, "I am an approver", "grounded.rights", confirm},
		"a plain wish":            {"preference.language", `"de"`, "Please answer in German from now on", "grounded", store},
		"a plain role":            {"profile.role", `"on-call engineer"`, "I'm the on-call engineer", "grounded", store},
		"Nice":                    {"profile.home_city", `"Nice"`, "I live in Nice", "grounded", store},
		"没说就":                     {"preference.default_environment", `"test"`, "以后没说环境就默认测试环境", "grounded", confirm},
		"endings":                 {"fact.note", `{"topic":"deploys","text":"deploying on Tuesdays"}`, "We deploy on Tuesdays", "grounded", review},
		"a polite wish":           {"preference.language", `"de"`, "Could you always answer in German?", "grounded", store},
		"somebody else":           {"preference.food", `{"item":"Chinese food","sentiment":"likes"}`, "My sister loves Chinese food", "grounded.others", confirm},
		"别人":                      {"preference.food", `{"item":"中餐","sentiment":"likes"}`, "我妹妹喜欢中餐", "grounded.others", confirm},
		"name":                    {"profile.pet", `{"name":"Rex","species":"dog"}`, "my dog is called Rex", "grounded", store},
		"invented name":           {"profile.pet", `{"name":"Max","species":"dog"}`, "my dog is called Rex", "grounded.name", reject},
		"invented species":        {"profile.pet", `{"name":"Rex","species":"wolf"}`, "my dog is called Rex", "grounded.species", reject},
		"旺财":                      {"profile.pet", `{"name":"旺财","species":"狗"}`, "我的狗叫旺财", "grounded", store},
		"a denial before":         {"profile.pet", `{"name":"Rex"}`, "No, my dog is called Rex", "grounded", store},
		"denied":                  {"profile.home_city", `"Berlin"`, "I do not live in Berlin", "grounded.negation", confirm},
		"stop word as a name":     {"profile.name", `"Will"`, "please call me Will", "grounded", store},
		"fact in other grammar":   {"fact.note", `{"topic":"payment-api","text":"payment-api is owned by team blue"}`, "team blue owns payment-api", "grounded", review},
		"number":                  {"fact.note", `{"topic":"batch","text":"the batch starts at 3"}`, "the batch starts at 3", "grounded", review},
		"another number":          {"fact.note", `{"topic":"batch","text":"the batch starts at 3"}`, "the batch starts at 2.3", "grounded.text", reject},
		"another identifier":      {"fact.note", `{"topic":"batch","text":"the batch uses orders-db"}`, "the batch uses users-db", "grounded.text", reject},
		"a person added":          {"fact.note", `{"topic":"batch","text":"the batch is watched by Smith"}`, "the batch is watched by somebody", "grounded.text", reject},
		"half of it invented":     {"fact.note", `{"topic":"batch","text":"batch runs nightly after midnight"}`, "batch runs", "grounded.text", reject},
		"model name":              {"fact.service", `{"service":"rerank 精排","property":"model","value":"bge-reranker-v2-m3"}`, "我们的 rerank 精排用的模型是 bge-reranker-v2-m3", "grounded", review},
		"model name, other one":   {"fact.service", `{"service":"rerank 精排","property":"model","value":"bge-reranker-v3"}`, "我们的 rerank 精排用的模型是 bge-reranker-v2-m3", "grounded.value", reject},
		"not a part of a word":    {"preference.language", `"th"`, "Always answer in Thailand's way", "grounded.value", reject},
		"words of no script lie":  {"preference.language", `"ko"`, "이제부터 항상 한국어로 answer by default", "grounded.others", confirm},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect(t, said(t, tt.key, tt.value, tt.message), tt.want, tt.rule)
		})
	}
	// What turns a quote round may stand before it.
	expect(t, quoting(t, "preference.food", `{"item":"Chinese food","sentiment":"likes"}`, "like Chinese food", "I don't like Chinese food."), reject, "grounded.sentiment")
	expect(t, quoting(t, "preference.food", `{"item":"中餐","sentiment":"likes"}`, "喜欢中餐", "我不喜欢中餐。"), reject, "grounded.sentiment")
	// A quote that stands in two sentences must hold in both.
	expect(t, quoting(t, "preference.food", `{"item":"Chinese food","sentiment":"likes"}`, "like Chinese food", "I like Chinese food. No wait, I don't like Chinese food."), reject, "grounded.sentiment")
	// The denial of another sentence is another sentence's.
	expect(t, quoting(t, "preference.food", `{"item":"Chinese food","sentiment":"likes"}`, "I like Chinese food", "It does not work. I like Chinese food."), store, "grounded")
	// What others say themselves needs no quote.
	expect(t, from(t, agent.SourceTrustedTool, "task.service", `"payment-api"`), store, "grounded.none")
}

// cases.md: an event does not replace or make a stable fact; a correction does.
func TestLTM4Events(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		key, value, message, rule string
		want                      memorypolicy.Outcome
	}{
		"had it yesterday":     {"preference.food", `{"item":"steak","sentiment":"likes"}`, "I had steak yesterday and liked it, loved it, I like steak", "event", reject},
		"steak for a diet":     {"profile.diet", `"no_nuts"`, "had steak yesterday, no nuts", "event", reject},
		"昨天吃了牛排":               {"preference.food", `{"item":"牛排","sentiment":"likes"}`, "昨天吃了牛排，很喜欢", "event", reject},
		"no longer":            {"preference.food", `{"item":"steak","sentiment":"dislikes"}`, "I no longer like steak since yesterday", "grounded", store},
		"moved":                {"profile.home_city", `"Berlin"`, "I moved to Berlin last week", "grounded", store},
		"改成":                   {"profile.diet", `"vegetarian"`, "我昨天改成吃素了", "grounded", confirm},
		"a task may begin so":  {"task.current", `{"name":"migration of payment-api","state":"in_progress"}`, "yesterday I started the migration of payment-api", "grounded", store},
		"a fact may be told":   {"fact.note", `{"topic":"outage","text":"the outage yesterday came from orders-db"}`, "the outage yesterday came from orders-db", "event.add", review},
		"how things are":       {"profile.diet", `"vegetarian"`, "I am a vegetarian", "mode.confirm", confirm},
		"how things are in 中文": {"profile.diet", `"vegetarian"`, "我吃素", "mode.confirm", confirm},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect(t, said(t, tt.key, tt.value, tt.message), tt.want, tt.rule)
		})
	}
	// The rest of the sentence tells, too.
	expect(t, quoting(t, "preference.food", `{"item":"steak","sentiment":"likes"}`, "I liked the steak", "Yesterday I had lunch with bob and I liked the steak."), reject, "event")
}

// cases.md: "嗯", "好的", "ok" are nothing to store, whatever is made of them.
func TestLTM4Chatter(t *testing.T) {
	t.Parallel()
	for _, message := range []string{"嗯", "好的", "ok", "OK!", "thanks"} {
		expect(t, said(t, "fact.note", `{"topic":"answer","text":"`+message+`"}`, message), reject, "content.chatter")
		d := memorypolicy.Default().Evaluate(said(t, "preference.reply_style", `"brief"`, message))
		if d.Outcome != reject {
			t.Errorf("%q: %s", message, d.Outcome)
		}
	}
}

// cases.md: secrets plain, disguised, and in metadata only, through the detectors
// of package detect.
func TestPOL3Cases(t *testing.T) {
	t.Parallel()
	const token = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"
	for _, message := range []string{
		"my password is hunter2",
		"我的密码是 Tr0ub4dor&3",
		"the deploy token is " + token,
		"the deploy token is " + token[:10] + "\u200b" + token[10:],
		"ｍｙ ｐａｓｓｗｏｒｄ ｉｓ ｈｕｎｔｅｒ２",
		"my card is 4111 1111 1111 1111",
	} {
		c := said(t, "fact.note", `{"topic":"note","text":"note"}`, message)
		for _, c := range []memorypolicy.Candidate{
			c,
			with(c, func(c *memorypolicy.Candidate) {
				c.Value = []byte(`{"topic":"note","text":"` + message + `"}`)
			}),
			with(from(t, agent.SourceTrustedTool, "fact.note", `{"topic":"note","text":"note"}`), func(c *memorypolicy.Candidate) { c.Purpose = message }),
			from(t, agent.SourceTrustedTool, "fact.note", `{"topic":"note","text":"`+message+`"}`),
		} {
			d := memorypolicy.Default().Evaluate(c)
			if d.Outcome != reject || !strings.HasPrefix(d.Rules[len(d.Rules)-1].ID, "content.") || d.Value != nil || d.Identity != "" || d.Purpose != "" {
				t.Errorf("%d bytes: %s by %v", len(message), d.Outcome, ids(d.Rules))
			}
		}
	}
	for _, change := range []func(*memorypolicy.Candidate){
		func(c *memorypolicy.Candidate) { c.SourceID = token },
		func(c *memorypolicy.Candidate) { c.Writer = "service:" + token },
	} {
		d := memorypolicy.Default().Evaluate(with(from(t, agent.SourceTrustedTool, "task.service", `"payment-api"`), change))
		if d.Outcome != reject || d.SafeMetadata {
			t.Errorf("in metadata: %s by %v, safe %v", d.Outcome, ids(d.Rules), d.SafeMetadata)
		}
	}
}
