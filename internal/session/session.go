// Package session reads what a conversation settles: facts in the results of
// tools, and standing prohibitions and their lifting in the user's own words
// (CONV-3). It is pure and decides by fixed rules, never by a model, and it
// knows nothing of the store; activities call it. Beside the standard library
// it imports agent, tool and golang.org/x/text.
package session

import (
	"errors"
	"slices"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/tool"
)

// Bounds of what Detect finds.
const (
	// MaxProhibitions is how many prohibitions that cover tools one message may
	// hold, and how many are kept of those that cover none.
	MaxProhibitions = 16
	// SentenceBytes is how long the text of a prohibition is. A longer sentence
	// is cut at the end of a clause, but only if nothing that belongs to the
	// prohibition, such as an exception, is cut off.
	SentenceBytes = 1_000
	// MaxSentenceBytes bounds the text of a prohibition in any case.
	MaxSentenceBytes = 4_000
	// EdgeBytes is how much of a long message is examined at each of its ends.
	EdgeBytes = 32 << 10
	// OwnBytes is the longest message whose words can lift a prohibition.
	OwnBytes = 500
)

// AllWrites stands in Prohibition.Tools for every tool that writes, also one
// that comes later: "do not change anything", "hands off production". It sorts
// before all names of tools.
const AllWrites = "*"

// ErrTooMany is returned for a message with more than MaxProhibitions
// prohibitions that cover tools. It is written for the one who sent the message.
var ErrTooMany = errors.New("it forbids more than 16 things: send them in several messages, or put text that is only quoted into a code fence or behind >")

// Vocabulary has the verbs of each tool, by its name: see tool.Spec.Verbs. A
// tool's own name is a verb of it in any case.
type Vocabulary map[string][]string

// Prohibition is one thing that the user forbade.
type Prohibition struct {
	// Text is what the user wrote: the whole sentence, byte for byte.
	Text string
	// Tools are the names of the tools that it covers, in order, or AllWrites
	// for all that write. It may cover none: then it is shown to the model and
	// refuses nothing.
	Tools []string
	// Ask says that the user demands to be asked first, and does not forbid.
	Ask bool
}

// Findings is what a message settles.
type Findings struct {
	// Prohibitions are in the order of the message. A sentence with two kinds
	// of prohibition has two entries with the same text.
	Prohibitions []Prohibition
	// Lifts are the names of the tools, in order, that the message expressly
	// allows again, with AllWrites for leave to make changes. They are about
	// prohibitions from before the message: those of the message itself stand.
	// Which prohibitions they take back, Lifted tells.
	Lifts []string

	lifts []lift
	verbs verbs
}

// Detect finds prohibitions and their lifting in a message that the user wrote,
// in English and Chinese. The same message gives the same findings. It is meant
// to find too much rather than too little: a prohibition that was missed can
// cost an outage, and one too many is lifted by a word.
//
// Letters count in any width and case, and invisible characters not at all.
// Code fences, lines that begin with ">", and quoted speech of others count for
// nothing; look-alikes of Latin letters count as those. Of a message longer than
// twice EdgeBytes only the first and the last EdgeBytes are examined.
//
// The error is ErrTooMany; the findings then lack what is beyond. Of prohibitions
// that cover no tools the first MaxProhibitions are kept and the others dropped:
// a text that was pasted may be full of them. With an empty vocabulary nobody
// can tell which cover tools: then all count, and ErrTooMany says that some are
// missing.
//
// Permission counts only in the user's own short words: in the first paragraph
// of a message of at most OwnBytes, without a colon before it, as a line of a
// mail or of a chat has.
func Detect(message string, v Vocabulary) (Findings, error) {
	m := parse(message, compile(v))
	var found Findings
	covering, others := 0, 0
	for p := range m.prohibitions() {
		same := func(q Prohibition) bool { return q.Text == p.Text && q.Ask == p.Ask && slices.Equal(q.Tools, p.Tools) }
		if slices.ContainsFunc(found.Prohibitions, same) {
			continue
		}
		if len(p.Tools) > 0 || len(v) == 0 {
			if covering++; covering > MaxProhibitions {
				return found.with(m), ErrTooMany
			}
		} else if others++; others > MaxProhibitions {
			continue
		}
		found.Prohibitions = append(found.Prohibitions, p)
	}
	return found.with(m), nil
}

func (f Findings) with(m *message) Findings {
	lifts := m.lifts()
	for _, l := range lifts {
		f.Lifts = append(f.Lifts, l.tools...)
	}
	slices.Sort(f.Lifts)
	f.Lifts = slices.Compact(f.Lifts)
	f.lifts = lifts
	f.verbs = m.verbs
	return f
}

// Lifted reports whether the user's words take all of p back: they allow each of
// its tools, and name no other thing than p does. Every place, name and other
// word of what they allow must occur in p, but for pronouns and the ban itself;
// what is said of anything is lifted only for anything, everything, or nothing
// named. "You may restart staging again" lifts nothing that was said about
// production. In doubt p stands. A prohibition without tools is lifted by words
// that it has itself: "you may use bullet points again".
func (f Findings) Lifted(p Prohibition) bool {
	if len(f.lifts) == 0 {
		return false
	}
	ban := f.verbs.standing(p.Text)
	if len(p.Tools) == 0 {
		return slices.ContainsFunc(f.lifts, func(l lift) bool { return l.worded() && l.within(ban) })
	}
	for _, name := range p.Tools {
		if !slices.ContainsFunc(f.lifts, func(l lift) bool { return slices.Contains(l.tools, name) && l.within(ban) }) {
			return false
		}
	}
	return true
}

// Covering returns the first prohibition that stands against a call of the tool:
// one that forbids it or, if it writes, all writes. One that only demands to be
// asked does not stand against a write, which the usual confirmation satisfies;
// against a tool that reads it does, because nobody would ask.
func Covering(prohibitions []Prohibition, name string, write bool) (Prohibition, bool) {
	for _, ask := range []bool{false, true} {
		if ask && write {
			break
		}
		i := slices.IndexFunc(prohibitions, func(p Prohibition) bool {
			return p.Ask == ask && (slices.Contains(p.Tools, name) || write && slices.Contains(p.Tools, AllWrites))
		})
		if i >= 0 {
			return prohibitions[i], true
		}
	}
	return Prohibition{}, false
}

// Refusal is what the model is told of a call that a prohibition covers. The
// prohibition's words are not in it: the model has them in its context, and the
// hash of an error enters histories.
func Refusal(p Prohibition) *tool.Error {
	if p.Ask {
		return &tool.Error{
			Code: agent.ToolProhibited,
			Message: "the user demanded to be asked before this tool is used; nothing was done. Ask the user now, and do not look for another way to the same effect. " +
				"Only they can allow it, by saying so in plain words such as \"you may do it now\" with the name of the action",
		}
	}
	return &tool.Error{
		Code: agent.ToolProhibited,
		Message: "a standing prohibition of the user covers this tool; nothing was done. Do not look for another way to the same effect. " +
			"Tell the user which prohibition stands in the way, and that only they can lift it, by saying so in plain words such as \"you may do it again now\" with the name of the action",
	}
}
