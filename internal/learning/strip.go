package learning

import (
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// Gap stands in what Strip leaves for each part that was taken out. No quote may
// contain it, so that none is put together from both sides of a gap.
const Gap = "\uFFFC"

// Strip takes out of a message what is not the user's own statement: quoted
// lines, code, HTML, pasted mails, logs and documents, forwarded parts, and what
// stands in quotation marks as somebody else's words (polluted sources). What is
// left is kept byte for byte; removed reports whether anything was taken out.
//
// In doubt it takes out: what the user did say can be said again, and what
// somebody else wrote must not become the user's.
func Strip(message string) (own string, removed bool) {
	s := stripper{message: message}
	s.lines()
	s.html()
	s.quotations()
	if len(s.out) == 0 {
		return message, false
	}
	slices.SortFunc(s.out, func(a, b span) int { return a.from - b.from })
	var b strings.Builder
	end := 0
	for _, o := range s.out {
		if o.to <= end {
			continue
		}
		if o.from > end || b.Len() == 0 {
			b.WriteString(message[end:max(end, o.from)])
			b.WriteString(Gap)
		}
		end = o.to
	}
	b.WriteString(message[end:])
	return b.String(), true
}

// span is a part of a text, in bytes.
type span struct{ from, to int }

// stripper collects what is taken out of a message; parts may overlap.
type stripper struct {
	message string
	out     []span
	// looks counts where JSON was looked for.
	looks int
	// quotes counts quotation marks that open.
	quotes int
}

func (s *stripper) take(from, to int) {
	if from < to {
		s.out = append(s.out, span{from, to})
	}
}

// line is one line of a message.
type line struct {
	span
	// text is the line as it is compared: compatibility forms replaced, lower
	// case, nothing invisible, no white space around it.
	text string
}

func linesOf(message string) []line {
	var lines []line
	for from := 0; from < len(message); {
		to := len(message)
		if i := strings.IndexByte(message[from:], '\n'); i >= 0 {
			to = from + i + 1
		}
		lines = append(lines, line{span{from, to}, fold(message[from:to])})
		from = to
	}
	return lines
}

// maxFolded bounds what of a line is compared: every pattern is at its beginning,
// but for what introduces a paste, which is short.
const maxFolded = 1 << 10

func fold(text string) string {
	if len(text) > maxFolded {
		text = text[:maxFolded] // cut inside of a character, it matches nothing more
	}
	visible := func(r rune) rune {
		switch {
		case unicode.In(r, unicode.Cf, unicode.Mn):
			return -1
		case unicode.IsSpace(r):
			return ' '
		}
		return unicode.ToLower(r)
	}
	return strings.TrimSpace(strings.Map(visible, norm.NFKC.String(text)))
}

var (
	// restPattern begins what is somebody else's to the end of the message: a mail,
	// or something forwarded.
	restPattern = regexp.MustCompile(`^[>|*_\s]*(?:` +
		`-{2,} ?(?:original|forwarded|begin forwarded|weitergeleitete|ursprüngliche|原始|原邮件|转发|轉發|元の)|begin forwarded message|` +
		`(?:from|von|de|发件人|寄件者|寄件人|发信人|差出人|보낸 사람)\*{0,2} ?:|` +
		`(?:fw|fwd|wg|tr|转发|轉發|转)\*{0,2} ?[::]|转发(?:的|一下|一封|自|来自|邮件|消息|内容)|以下(?:是|为)?转发|` +
		`(?:on|am|le|el) .{4,120}(?:wrote|schrieb|a écrit|escribió) ?:$|(?:在|于)?.{0,60}\d{4}.{0,80}(?:写道|寫道) ?:?$|.{0,60}<[^<> ]+@[^<> ]+> ?(?:wrote|写道|于.{0,40}写道) ?:?$)`)
	// headerPattern is a line of a mail's head. Two of them in a row are one.
	headerPattern = regexp.MustCompile(`^(?:sent|to|cc|bcc|date|subject|reply-to|message-id|gesendet|an|betreff|发送时间|收件人|抄送|主题|日期|时间|主旨) ?: ?\S`)
	// pastedPattern ends with a colon and names what comes after it.
	pastedPattern = regexp.MustCompile(`(?:\b(?:e-?mail|mail|message from|article|web ?page|website|page|document|doc|docs|documentation|log|logs|output|trace|stack ?trace|transcript|chat|conversation|readme|wiki|ticket|issue|comment|review|post|tweet|thread|snippet|paste|pasted|copied|excerpt|response from|reply from|answer from|ai|bot|assistant|chatgpt|it says|it said|they wrote|he wrote|she wrote|who wrote|wrote me)\b` +
		`|邮件|郵件|文章|网页|網頁|页面|文档|文檔|日志|日誌|输出|聊天记录|对话|群里|公告|通知|帖子|评论|工单|原文|转发|摘录|粘贴|复制|截图|写道|回复(?:是|说|如下)|内容如下).{0,60}:$`)
	// minePattern is the user's own after all, such as "my preferences for mails:".
	minePattern = regexp.MustCompile(`\bmy (?:own )?(?:preferences?|defaults?|settings|rules|wishes)\b|\bi (?:prefer|want|like)\b|\b(?:from now on|always|by default|in future|every|each|whenever)\b` +
		`|我的(?:偏好|习惯|设置|要求|规则)|我(?:喜欢|希望|想要|偏好)|以后|今后|每次|总是|默认|一律`)
	// foreignPattern is a line of a log, a stack trace, a diff, or a transcript.
	foreignPattern = regexp.MustCompile(`^(?:` +
		`\[?\d{4}[-/]\d{1,2}[-/]\d{1,2}[t ,]+\d{1,2}:\d{2}|\[\d{1,2}:\d{2}[^\]]{0,12}\]|\d{1,2}:\d{2}(?::\d{2})?(?:[.,]\d+)? +[^\s:][^:]{0,40}: |` +
		`\[?(?:trace|debug|warn|warning|error|fatal|panic|critical)\]?(?: *[:\[|]| +\d| +\[)|\[?info\]?(?: +\d| *\[)|(?:level|ts|time)=|` +
		`at [\w$.<>]+\(|caused by:|traceback \(|file "[^"]+", line|goroutine \d+|exception in thread|` +
		`diff --git |@@ -\d|index [0-9a-f]{7,}\.\.|` +
		`(?:\*\*)?(?:assistant|system|user|human|ai|bot|chatgpt|claude|助手|系统|机器人|客服|用户)(?: ?\([^)]{0,40}\))?(?:\*\*)? ?(?:\d{1,2}:\d{2})? ?:|` +
		`<\|[a-z_]+\|>|\[/?inst\]|### ?(?:instruction|response|system)|\|.*\|$)`)
	quotePattern = regexp.MustCompile(`^(?:[>»┃▎▏│]|\[quote|&gt;)`)
	fencePattern = regexp.MustCompile("^(?:[>*+-]+ )?(`{3,}|~{3,})")
)

// introduces reports whether a line says that what comes after it is a text of
// somebody else's.
func introduces(text string) bool {
	return (pastedPattern.MatchString(text) || sentPattern.MatchString(text)) && !minePattern.MatchString(text)
}

// lines takes out whole lines, and what such a line begins.
func (s *stripper) lines() {
	lines := linesOf(s.message)
	s.conversation(lines)
	for i := 0; i < len(lines); i++ {
		l := lines[i]
		if at := strings.Index(s.message[l.from:l.to], " >> "); at >= 0 {
			s.take(l.from+at, l.to) // quoted in the line
		}
		if part, ok := s.task(lines, i); ok {
			s.take(part.from, part.to)
			if part.to == len(s.message) {
				return
			}
		}
		next := ""
		if i+1 < len(lines) {
			next = lines[i+1].text
		}
		switch {
		case l.text == "":
		case fencePattern.MatchString(l.text):
			i = s.fenced(lines, i)
		case restPattern.MatchString(l.text), headerPattern.MatchString(l.text) && (headerPattern.MatchString(next) || restPattern.MatchString(next)):
			s.take(l.from, len(s.message))
			return
		case introduces(l.text) && i+1 < len(lines):
			// The line itself is the user's.
			s.take(l.to, len(s.message))
			return
		case rulePattern.MatchString(next) && !minePattern.MatchString(l.text):
			s.take(l.from, len(s.message)) // a document with its title
			return
		case quotePattern.MatchString(l.text), foreignPattern.MatchString(l.text), queryPattern.MatchString(l.text):
			s.take(l.from, l.to)
		case strings.HasPrefix(l.text, "{") || strings.HasPrefix(l.text, "["):
			i = s.data(lines, i)
		}
	}
}

// fenced takes out a fence of code and returns the index of its last line. One
// that is not closed goes on to the end.
func (s *stripper) fenced(lines []line, first int) int {
	last := fenceEnd(lines, first)
	s.take(lines[first].from, lines[min(last, len(lines)-1)].to)
	return last
}

// fenceEnd returns the index of the line that closes a fence, the number of lines
// if none does.
func fenceEnd(lines []line, first int) int {
	mark := fencePattern.FindStringSubmatch(lines[first].text)[1]
	for i := first + 1; i < len(lines); i++ {
		if closing := fencePattern.FindStringSubmatch(lines[i].text); closing != nil && strings.HasPrefix(closing[1], mark) {
			return i
		}
	}
	return len(lines)
}

// Bounds of the looks for JSON.
const (
	maxDataBytes = 16 << 10
	maxDataLooks = 32
)

// data takes out an object or list in JSON that begins with a line, and returns
// the index of the last line that it touches. One without an end in sight goes on
// to the end.
func (s *stripper) data(lines []line, first int) int {
	if s.looks++; s.looks > maxDataLooks {
		return first
	}
	from := lines[first].from
	end := min(len(s.message), from+maxDataBytes)
	dec := json.NewDecoder(strings.NewReader(s.message[from:end]))
	var value any
	if err := dec.Decode(&value); err != nil {
		if end < len(s.message) && errors.Is(err, io.ErrUnexpectedEOF) {
			s.take(from, len(s.message))
			return len(lines)
		}
		return first
	}
	to := from + int(dec.InputOffset())
	s.take(from, to)
	for first+1 < len(lines) && lines[first+1].from < to {
		first++
	}
	return first
}
