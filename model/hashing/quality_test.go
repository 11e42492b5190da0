package hashing_test

import (
	"testing"

	"github.com/fairlead/fairlead/model/hashing"
)

// pairs are questions with the memory that answers each. The memories of all
// others, and the distractors, compete with it.
var pairs = []struct{ question, memory string }{
	// English.
	{"Which environment do I use by default?", "default environment: production"},
	{"How should reports be formatted?", "report format: bullet points, at most one page"},
	{"Do I like dark themes?", "The user prefers a dark theme in the editor."},
	{"what's my time zone", "time zone: Europe/Berlin"},
	{"Who is on call for the payment API this week?", "On call for payment-api: the billing team"},
	{"Restart the checkout service, as usual with draining", "Restarting checkout: drain connections first."},
	{"What food am I allergic to?", "allergy: peanuts; avoid this food"},
	{"Which language do we write our backend in?", "The backend is written in Go; that is the team's language."},
	{"where are the runbooks kept?", "Runbooks are in the wiki under operations/runbooks."},
	{"How many retries does the gateway make?", "The gateway is set to maxRetries 5."},
	{"when is the maintenance window", "maintenance window: Saturday 02:00 to 04:00 UTC"},
	{"Am I a vegetarian?", "diet: vegetarian"},
	{"What is the open task with the certificate renewal?", "Ongoing task: renew the TLS certificate of shop.example by May."},
	{"which database does inventory run on", "inventory-service stores its data in PostgreSQL 17."},
	{"Please deploy the frontend to my usual region", "deployment region: eu-central-1"},
	{"How long should answers be?", "answer length: short, three sentences"},
	{"Which alert channel does our team read?", "alerts go to the channel #team-ops"},
	{"my favorite unit of temperature", "temperature unit: Celsius"},
	// Chinese.
	{"我喜欢什么", "用户喜欢苹果"},
	{"我们最近配置的 rerank 精排是什么模型", "rerank 精排模型:bge-reranker-v2-m3"},
	{"每日复盘 cron 备份", "每日复盘的 cron 任务在凌晨两点备份数据库"},
	{"多租户", "系统采用多租户隔离,每个租户一个密钥"},
	{"默认用哪个环境?", "默认环境:生产"},
	{"我对什么过敏", "过敏:花生"},
	{"支付服务谁负责?", "支付服务由账务组负责"},
	{"周报应该用什么格式", "周报格式:要点列表,不超过一页"},
	{"我的时区是哪个?", "时区:亚洲/上海"},
	{"维护窗口什么时候开始", "维护窗口:周六凌晨两点到四点"},
	{"证书续期那件事做到哪了", "进行中:五月前完成证书续期"},
	{"我吃素吗?", "饮食:素食,用户吃素"},
	{"告警发到哪个群", "告警统一发到运维群"},
	{"回答要多详细", "回答风格:简短,三句话以内,不要太详细"},
	// Mixed, Japanese, Korean.
	{"payment-api 的负责人是谁", "payment-api 负责人:张工程师"},
	{"k8s 集群升级到哪个版本了", "k8s 集群已升级到 1.31"},
	{"デフォルトの言語は何ですか", "デフォルトの言語:日本語"},
	{"기본 환경이 무엇입니까", "기본 환경: 운영"},
	// Disguised spelling: full-width letters, an invisible space, capitals.
	{"ｗｈｉｃｈ ｖｐｎ profile?", "VPN profile: office-east"},
	{"log\u200blevel of the SEARCH indexer", "search-indexer: loglevel debug"},
}

var distractors = []string{
	"The user prefers tea to coffee.", "default editor: vim", "report recipients: finance", "The checkout page has a blue button.",
	"time budget: two hours a week", "The wiki moved to another host.", "language of the interface: English", "team lunch on Fridays",
	"环境变量在启动脚本里设置", "用户怕下雨", "模型评测每周运行一次", "备份保留三十天", "服务器在机房二楼", "周会在周一上午", "群里有二十个人", "窗口朝南",
}

func dot(a, b []float32) float64 {
	sum := 0.0
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

func embed(t testing.TB, texts ...string) [][]float32 {
	t.Helper()
	e, err := hashing.New(hashing.Options{})
	if err != nil {
		t.Fatal(err)
	}
	vectors, err := e.Embed(t.Context(), texts)
	if err != nil || len(vectors) != len(texts) {
		t.Fatalf("%d vectors for %d texts, %v", len(vectors), len(texts), err)
	}
	return vectors
}

// TestQuality: for every question the memory that answers it ranks first.
func TestQuality(t *testing.T) {
	t.Parallel()
	var questions, memories []string
	for _, p := range pairs {
		questions, memories = append(questions, p.question), append(memories, p.memory)
	}
	memories = append(memories, distractors...)
	asked, known := embed(t, questions...), embed(t, memories...)
	first := 0
	for i, q := range asked {
		best := -1 // of the others
		for j := range known {
			if j != i && (best < 0 || dot(q, known[j]) > dot(q, known[best])) {
				best = j
			}
		}
		right, wrong := dot(q, known[i]), dot(q, known[best])
		if right <= wrong {
			t.Errorf("%q finds %q (%.2f) before %q (%.2f)", questions[i], memories[best], wrong, memories[i], right)
			continue
		}
		first++
		t.Logf("%.2f over %.2f: %s", right, wrong, questions[i])
	}
	t.Logf("%d of %d questions find their memory first among %d", first, len(pairs), len(memories))
}
