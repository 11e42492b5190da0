package session

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// object is what words of permission are said of.
type object struct {
	// places and names are environments, and names of services and the like.
	places, names map[string]bool
	// words are the stems of other English words that mean something, chunks are
	// such Chinese text.
	content map[string]bool
	chunks  []string
	// pronoun: it is "it" or the like. all: it is anything or everything.
	pronoun, all bool
}

// named reports whether the object names something.
func (o object) named() bool {
	return len(o.places)+len(o.names)+len(o.content)+len(o.chunks) > 0
}

var (
	places = []struct {
		name    string
		pattern *regexp.Regexp
	}{
		{"staging", regexp.MustCompile(`\b(?:staging|stage|preprod|pre-prod|uat)\b|预发|预生产`)},
		{"test", regexp.MustCompile(`\b(?:test|testing|qa)\b|测试`)},
		{"development", regexp.MustCompile(`\b(?:dev|development|local|sandbox)\b|开发环境|沙箱|本地`)},
		{"canary", regexp.MustCompile(`\bcanary\b|灰度`)},
		{"production", regexp.MustCompile(`\b(?:production|prod|live)\b|生产|线上|正式环境`)},
	}
	namePattern = regexp.MustCompile(`[a-z0-9]+(?:[-_.][a-z0-9]+)+|\b[a-z]+\d[a-z0-9]*\b`)
)

// thingsIn adds the places and names in a folded text, and returns the text
// without the places.
func (o *object) thingsIn(text string) string {
	rest := text
	for _, place := range places {
		if place.pattern.MatchString(rest) {
			o.places[place.name] = true
			rest = place.pattern.ReplaceAllString(rest, " ")
		}
	}
	for _, name := range namePattern.FindAllString(rest, -1) {
		o.names[name] = true
	}
	return rest
}

var (
	// functionWords name nothing. Those of permission and of the ban are here too.
	functionWords = words("a an the my your our their its his her some this that these those there here it them they he she him one ones i we you me who which and or nor but so then as if " +
		"of in on at to for from with by into onto over up out off about is are be been being was were am do does did done have has had having may can could will would shall should must might " +
		"now again ever just even simply also still already please pls kindly ok okay yes yeah yep right alright all fine good great well sure thanks thank cheers hello hi hey " +
		"free feel allowed permitted authorized authorised cleared permission approval blessing consent allow permit authorize authorise hereby " +
		"what said not never no longer every any anything everything anytime freely wish totally perfectly absolutely stuff things thing go ahead note more too is")
	// takingWords and banNouns name nothing in words that take a ban back, and a
	// noun only once:
	// the next may be a service's name.
	takingWords = words("lift lifts lifted lifting remove removed withdraw withdrawn revoke revoked cancel cancelled canceled rescind rescinded drop dropped take takes took taken back end ended over gone like want my")
	banNouns    = words("ban bans prohibition prohibitions restriction restrictions rule rules block blocks freeze embargo instruction instructions order orders hold limit limits")
	// freePattern is of no condition.
	freePattern  = regexp.MustCompile(`\bany ?time\b|\bwhenever you (?:like|want|wish)\b|\bas (?:often as )?you (?:like|wish|want)\b`)
	pronounWords = words("it them that this these those one him they its")
	allWords     = words("anything everything")
	// events are what is spoken of beside a permission, as its reason, and what is
	// said of them.
	events = words("backup backups dump dumps export import migration migrations maintenance window freeze incident outage demo closing month-end audit sale peak traffic release deploy deployment analysis investigation meeting call customer customers user users vendor team everyone everybody people work job test tests problem problems issue issues logs log errors error data " +
		"finished complete completed closed resolved fixed solved ready through safe passed offline online gone left agreed confirmed approved done over today")
	zhEvents = regexp.MustCompile(`^(?:备份|封网|月结|迁移|大促|演示|维护|窗口|导出|审计|高峰|业务|问题|故障|客户|用户|领导|老板|数据|现场|日志|分析|排查|测试|值班|变更|冻结|期|已经|都|也|全部|刚刚|做|完成|完|结束|解决|处理|过去|过|好|搞定|离开|确认|同意|下线|走|行|嗯|谢谢|辛苦|没问题|了|的|啦|吧|现在|今天|那|ok|恢复|正常|导|抓|收集|保存|保留|取)*$`)
	// zhBefore and zhAfter stand around what a permission is said of.
	zhBefore = regexp.MustCompile(`^(?:现在|目前|从现在起|从现在开始|已经|你们|我们|您|你|我|可以|允许|准许|授权|同意|随时|再次|重新|继续|开始|正常|放心|又|都|也|再|请|就|那么|嗯|好的|好了|所有的?|全部的?|一切|任何|一下|环境的?|上面的?|上的|里的|中的|的|千万|绝对|不要|不准|不许|不得|不能|严禁|禁止|别|勿)+`)
	zhAfter  = regexp.MustCompile(`(?:了|啦|咯|吧|啊|哦|哈|的|着|一下|可以|能|准|再次|再|重新|随时|继续|去|又|把|对|给|将|都|也|随便|直接|做|进行|执行)+$`)
	// zhTaken are the words of a ban that is taken back.
	zhTaken    = regexp.MustCompile(`^(?:正式|特此|宣布|解除|取消|撤销|撤回|收回|废除|放开|对|之前|以前|此前|刚才|说|的|那条|那个|这个|不要|不准|不许|不得|禁止|关于)+|(?:的|禁令|限制|禁止|约束|规定|要求|冻结|封禁|指令|命令|解禁|已经|现在|都|解除|取消|撤销|放开|结束|了)+$`)
	zhNameless = regexp.MustCompile(`^(?:它们?|他们?|这个|那个|这些|那些|这|那|东西|环境|上|里|中|好|行|对|嗯|可|能|准|操作|动作|任何)$`)
	zhPronoun  = regexp.MustCompile(`它们?|这个|那个|这些|那些`)
	zhAllThing = regexp.MustCompile(`(?:所有|全部|一切|任何)(?:东西|操作|的|实例|服务)?`)
)

// object reads what the sentence, whose clause p gives permission, speaks of: in
// all its clauses, and the sentence before it if only a pronoun or nothing says
// it.
func (s *sentence) object(p span, takes bool) object {
	o := object{places: map[string]bool{}, names: map[string]bool{}, content: map[string]bool{}}
	for _, part := range s.segments() {
		s.read(&o, part, part != p, takes)
	}
	if prev := s.previous; prev != nil && !o.named() {
		o.thingsIn(prev.text(prev.from, prev.to))
		for i, w := range prev.words {
			if determiners[w.text] && i+1 < len(prev.words) && prev.words[i+1].kind == letters {
				for j := i + 1; j < len(prev.words) && j <= i+2 && prev.words[j].kind == letters && !functionWords[prev.words[j].text]; j++ {
					if next := prev.words[j].text; !events[next] {
						o.content[stem(next)] = true
					}
				}
			}
		}
	}
	return o
}

// read adds what a clause speaks of.
func (s *sentence) read(o *object, p span, beside, takes bool) {
	text := s.text(p.from, p.to)
	o.all = o.all || zhAllThing.MatchString(text)
	o.pronoun = o.pronoun || zhPronoun.MatchString(text)
	o.thingsIn(text)
	gone := []byte(text)
	blank := func(from, to int) {
		for i := max(from, p.from); i < min(to, p.to); i++ {
			gone[i-p.from] = ' '
		}
	}
	for _, v := range s.verbsFrom(p.from) {
		if v.from >= p.to {
			break
		}
		if len(strings.Fields(s.text(v.from, v.to))) == 1 {
			blank(v.from, v.to)
			continue
		}
		// The parts of "roll the release back".
		first, last := s.wordAt(v.from), s.wordAt(v.to)-1
		blank(s.words[first].from, s.words[first].to)
		blank(s.words[max(last, 0)].from, v.to)
	}
	if !beside {
		for _, at := range generalLeave.FindAllStringIndex(text, -1) {
			blank(p.from+at[0], p.from+at[1])
		}
	}
	for _, at := range freePattern.FindAllStringIndex(text, -1) {
		blank(p.from+at[0], p.from+at[1])
	}
	rest := (&object{places: map[string]bool{}, names: map[string]bool{}}).thingsIn(string(gone))
	var content []string
	event, banned := true, !takes
	for _, w := range tokensOf(rest) {
		switch {
		case w.kind == letters:
			o.all = o.all || allWords[w.text]
			o.pronoun = o.pronoun || pronounWords[w.text] && !beside
			if functionWords[w.text] || takes && takingWords[w.text] {
				continue
			}
			if banNouns[w.text] && !banned {
				banned = true
				continue
			}
			content = append(content, stem(w.text))
			event = event && events[w.text]
		case w.kind == signs && beside && zhEvents.MatchString(w.text):
		case w.kind == signs:
			for _, chunk := range strings.Fields(w.text) {
				if chunk = zhChunk(chunk, takes); chunk != "" {
					o.chunks = append(o.chunks, chunk)
				}
			}
		}
	}
	if beside && event {
		// A reason: "the backup is done".
		return
	}
	for _, word := range content {
		o.content[word] = true
	}
}

// zhChunk returns what of a run of signs names something. Only its ends are cut:
// what looks like a particle inside may be a part of a name.
func zhChunk(run string, takes bool) string {
	if takes {
		run = zhTaken.ReplaceAllString(run, "")
	}
	run = zhAfter.ReplaceAllString(zhBefore.ReplaceAllString(run, ""), "")
	if zhNameless.MatchString(run) {
		return ""
	}
	return run
}

// tokensOf takes a folded text apart.
func tokensOf(text string) []word {
	apart := message{folded: folded{text: text}}
	return apart.tokens(span{0, len(text)})
}

// stem makes the forms of a word one.
func stem(word string) string {
	word = strings.TrimSuffix(word, "'s")
	for _, ending := range []string{"ings", "ing", "ied", "ies", "ed", "es", "s", "e", "y"} {
		if cut, ok := strings.CutSuffix(word, ending); ok && len(cut) >= 3 {
			return cut
		}
	}
	return word
}

// ban is a standing prohibition in the terms of object.
type ban struct {
	object
	text string
	// universal: it is said of anything.
	universal bool
	// parts are what its coordinated parts speak of.
	parts []object
}

var (
	enUniversal  = regexp.MustCompile(`\b(?:anything|everything|nothing|any|all|every|no)\b *(\w*)`)
	zhUniversal  = regexp.MustCompile(`(?:任何|一切|所有|全部|什么)(?:都|也)?([^,。;]{0,2})`)
	ofNoThing    = words("circumstances circumstance time times case cases condition conditions account way means reason event longer one more matter need")
	zhOfNoThing  = regexp.MustCompile(`^(?:人|情况|时候|时间|条件|都|也$)`)
	banBegins    = regexp.MustCompile(`\b(?:not|never|no|nothing|nobody|without|avoid|stop|refrain|leave|keep|hands|cannot|forbid|skip|zero)\b|n't\b|不|别|勿|禁`)
	banEnds      = regexp.MustCompile(`\b(?:because|since|until|unless|while|before|after|so|as|when|if)\b|因为|除非|直到|否则|以免|[;。!?\n]|\. `)
	coordination = regexp.MustCompile(`\b(?:or|nor|and|plus)\b|[/、]|和|或者?|以及|及|与|还有`)
)

// standing reads the text of a prohibition.
func (all verbs) standing(text string) ban {
	m := &message{folded: fold(text), verbs: all}
	b := ban{text: strings.ReplaceAll(m.text, " ", "")}
	b.object = object{places: map[string]bool{}, names: map[string]bool{}, content: map[string]bool{}}
	b.thingsIn(m.text)
	for _, w := range tokensOf(m.text) {
		b.content[stem(w.text)] = true
	}
	for _, at := range enUniversal.FindAllStringSubmatch(m.text, -1) {
		noun := at[1]
		if word := strings.TrimSpace(strings.TrimSuffix(at[0], noun)); word == "no" || word == "all" {
			// "No service may be restarted", and not "no restarts".
			b.universal = b.universal || word == "all" && noun == "" || word == "no" && noun != "" && !ofNoThing[noun] && all.named(noun) == nil && !touched[noun] && noun != "changes"
			continue
		}
		b.universal = b.universal || !ofNoThing[noun] && all.named(noun) == nil
	}
	for _, at := range zhUniversal.FindAllStringSubmatch(m.text, -1) {
		b.universal = b.universal || !zhOfNoThing.MatchString(at[1])
	}
	at := 0
	if begins := banBegins.FindStringIndex(m.text); begins != nil {
		at = begins[1]
	}
	reach := m.text[at:]
	if ends := banEnds.FindStringIndex(reach); ends != nil && ends[0] > 0 {
		reach = reach[:ends[0]]
	}
	for _, part := range coordination.Split(reach, -1) {
		s := &sentence{m: &message{folded: folded{text: part}, verbs: all}, span: span{0, len(part)}}
		s.words = s.m.tokens(s.span)
		s.verbs = all.occurrences(s)
		o := object{places: map[string]bool{}, names: map[string]bool{}, content: map[string]bool{}}
		s.read(&o, s.span, false, false)
		b.parts = append(b.parts, o)
	}
	return b
}

// within reports whether the lift names nothing but what b speaks of, and all
// that b is said of.
func (l lift) within(b ban) bool {
	o := l.object
	if !o.named() {
		return !b.universal || o.all || l.every || !o.pronoun
	}
	if b.universal && !o.all && !l.every {
		return false
	}
	subset := func(a, b map[string]bool) bool {
		for x := range a {
			if !b[x] {
				return false
			}
		}
		return true
	}
	if !subset(o.places, b.places) || !subset(o.names, b.names) || !subset(o.content, b.content) ||
		len(o.places) > 0 && !subset(b.places, o.places) || len(o.names) > 0 && !subset(b.names, o.names) {
		return false
	}
	for _, chunk := range o.chunks {
		if !strings.Contains(b.text, chunk) {
			return false
		}
	}
	if len(b.parts) < 2 || l.words {
		return true
	}
	// Each of the things that are forbidden is spoken of.
	return !slices.ContainsFunc(b.parts, func(part object) bool { return part.named() && !o.meets(part) })
}

// meets reports whether two objects have something in common.
func (o object) meets(other object) bool {
	common := func(a, b map[string]bool) bool {
		for x := range a {
			if b[x] {
				return true
			}
		}
		return false
	}
	return common(o.places, other.places) || common(o.names, other.names) || common(o.content, other.content) ||
		slices.ContainsFunc(o.chunks, func(a string) bool {
			return slices.ContainsFunc(other.chunks, func(b string) bool {
				return utf8.RuneCountInString(a) > 0 && (strings.Contains(a, b) || strings.Contains(b, a))
			})
		})
}
