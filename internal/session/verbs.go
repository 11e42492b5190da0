package session

import (
	"maps"
	"slices"
	"strings"
	"unicode"
)

// verb is one way to name what a tool does, folded.
type verb struct {
	tool string
	// words are the words of a verb in letters.
	words []string
	// signs is a verb in a script without spaces between words.
	signs string
}

// verbs are compiled once for each message.
type verbs struct {
	list []verb
	// forms finds a verb by a form of its first word: restart, restarts,
	// restarted, restarting. bases are the first words themselves.
	forms map[string][]int
	bases map[string]bool
}

// occurrence is a verb of a tool in a sentence.
type occurrence struct {
	span
	tool string
	kind kind
}

func compile(v Vocabulary) verbs {
	all := verbs{forms: map[string][]int{}, bases: map[string]bool{}}
	add := func(name string, parts ...string) {
		for form := range inflections(parts[0]) {
			all.forms[form] = append(all.forms[form], len(all.list))
		}
		all.bases[parts[0]] = true
		all.list = append(all.list, verb{tool: name, words: parts})
	}
	for _, name := range slices.Sorted(maps.Keys(v)) {
		for _, word := range append([]string{name}, v[name]...) {
			text := strings.TrimSpace(fold(word).text)
			if strings.ContainsFunc(text, unspaced) {
				all.list = append(all.list, verb{tool: name, signs: text})
				continue
			}
			parts := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '-' })
			if len(parts) == 0 {
				continue
			}
			add(name, parts...)
			if len(parts) > 1 {
				// A rollback, the shutdown.
				add(name, strings.Join(parts, ""))
			} else if repeated[parts[0]] {
				add(name, "re"+parts[0])
			}
		}
	}
	return all
}

// unspaced reports whether r is of a script that writes no spaces between words,
// or joins endings to them.
func unspaced(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Thai)
}

var irregular = map[string][]string{
	"run": {"ran"}, "send": {"sent"}, "take": {"took", "taken"}, "bring": {"brought"}, "build": {"built"}, "write": {"wrote", "written"},
	"make": {"made"}, "buy": {"bought"}, "pay": {"paid"}, "sell": {"sold"}, "give": {"gave", "given"}, "break": {"broke", "broken"},
	"drive": {"drove", "driven"}, "tear": {"tore", "torn"}, "freeze": {"froze", "frozen"}, "lose": {"lost"}, "find": {"found"},
	"overwrite": {"overwrote", "overwritten"}, "rewrite": {"rewrote", "rewritten"}, "withdraw": {"withdrew", "withdrawn"},
	"bind": {"bound"}, "spin": {"spun"}, "read": {"read"}, "tell": {"told"}, "undo": {"undid", "undone"}, "redo": {"redid", "redone"},
}

// inflections returns the forms of an English verb, and some that do not exist.
func inflections(base string) map[string]bool {
	forms := map[string]bool{}
	add := func(list ...string) {
		for _, form := range list {
			forms[form] = true
		}
	}
	add(base, base+"s", base+"es", base+"ed", base+"ing", base+"ings", base+"ment", base+"ments")
	add(irregular[base]...)
	last := base[len(base)-1]
	stem := base[:len(base)-1]
	switch {
	case last == 'e':
		add(base+"d", stem+"ing", stem+"ings")
		if strings.HasSuffix(base, "te") {
			add(stem+"ion", stem+"ions") // deletion
		}
	case last == 'y':
		add(stem+"ies", stem+"ied")
	case last >= 'a' && last <= 'z':
		add(base+string(last)+"ed", base+string(last)+"ing")
	}
	return forms
}

// repeated are verbs that are the same act when they are done again.
var repeated = words("deploy run build create install launch apply index sync import send write configure schedule provision enable start boot")

// prefixes do not change what a verb does: auto-restart, re-deploy.
var prefixes = []string{"auto", "re", "force", "hot", "cold", "hard", "soft", "self", "bulk", "mass", "pre"}

// named returns the verbs of whose first word the word is a form.
func (all verbs) named(word string) []int {
	if found := all.forms[word]; found != nil {
		return found
	}
	before, after, hyphen := strings.Cut(word, "-")
	if !hyphen {
		return nil
	}
	if found := all.forms[before+after]; found != nil || !slices.Contains(prefixes, before) {
		return found
	}
	return all.forms[after]
}

// reach is how many words may stand between the parts of a verb: "roll the whole
// release back".
const reach = 5

// occurrences finds all verbs of a sentence, in the order of the text.
func (all verbs) occurrences(s *sentence) []occurrence {
	var found []occurrence
	for i, w := range s.words {
		if w.kind != letters {
			continue
		}
		for _, at := range all.named(w.text) {
			v := all.list[at]
			rest, last := v.words[1:], i
			for next := i + 1; len(rest) > 0 && next < len(s.words) && next <= i+reach+len(v.words)-1; next++ {
				if s.words[next].text == rest[0] {
					rest, last = rest[1:], next
				}
			}
			if len(rest) == 0 {
				found = append(found, occurrence{span{w.from, s.words[last].to}, v.tool, letters})
			}
		}
	}
	text := s.text(s.from, s.to)
	for _, v := range all.list {
		if v.signs == "" {
			continue
		}
		for from := 0; ; {
			i := strings.Index(text[from:], v.signs)
			if i < 0 {
				break
			}
			from += i + len(v.signs)
			found = append(found, occurrence{span{s.from + from - len(v.signs), s.from + from}, v.tool, signs})
		}
	}
	slices.SortStableFunc(found, func(a, b occurrence) int { return a.from - b.from })
	return found
}

// from returns the verbs that begin at or after a place.
func (s *sentence) verbsFrom(at int) []occurrence {
	i, _ := slices.BinarySearchFunc(s.verbs, at, func(o occurrence, at int) int {
		if o.from < at {
			return -1
		}
		return 1
	})
	return s.verbs[i:]
}

// tools returns the tools whose verbs occur between two places, each once.
func (s *sentence) tools(from, to int) []string {
	var tools []string
	for _, o := range s.verbsFrom(from) {
		if o.from >= to {
			break
		}
		if o.to <= to && !slices.Contains(tools, o.tool) {
			tools = append(tools, o.tool)
		}
	}
	return tools
}

// verbAt returns a verb that begins at a place, but for spaces.
func (s *sentence) verbAt(at int) (occurrence, bool) {
	for at < s.to && s.m.text[at] == ' ' {
		at++
	}
	if list := s.verbsFrom(at); len(list) > 0 && list[0].from == at {
		return list[0], true
	}
	return occurrence{}, false
}
