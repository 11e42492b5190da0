package activities

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/session"
	"github.com/fairlead/fairlead/tool"
)

// detect reads what a message forbids and takes back.
func (r *Runs) detect(req agent.RunRequest, def definition.Definition) (session.Findings, error) {
	found, err := session.Detect(req.Message, r.vocabulary(def))
	if err != nil {
		return session.Findings{}, refuse(agent.ErrorInvalidRequest, "message: "+err.Error())
	}
	return found, nil
}

// settled is what a request settles in its conversation (CONV-3): what the user
// confirmed or forbade in the product's interface, and what the message itself
// forbids or takes back. Nothing of it comes from a model.
func settled(req agent.RunRequest, p plan, question db.Message, state db.SessionState) ([]db.SessionEntry, error) {
	change := req.Session
	if change == nil {
		change = &agent.SessionChange{}
	}
	entries, err := confirmed(change, p.definition)
	if err != nil {
		return nil, err
	}
	for _, id := range change.Lift {
		if !slices.ContainsFunc(state.Prohibitions, func(e db.SessionEntry) bool { return e.Key == id }) {
			return nil, refuse(agent.ErrorInvalidRequest, "session.lift: it names a prohibition that does not stand in the conversation")
		}
	}
	// What is taken back was there before this message.
	var standing []db.SessionEntry
	for _, e := range state.Prohibitions {
		if slices.Contains(change.Lift, e.Key) || p.found.Lifted(prohibitionOf(e)) {
			entries = append(entries, db.SessionEntry{Kind: db.EntryLift, Key: e.Key})
		} else {
			standing = append(standing, e)
		}
	}
	for i, e := range forbidden(change, p.found) {
		if slices.ContainsFunc(standing, func(old db.SessionEntry) bool { return sameProhibition(old, e) }) {
			// Said again it is no second one.
			continue
		}
		e.Key = prohibitionID(req, i)
		entries, standing = append(entries, e), append(standing, e)
	}
	for i := range entries {
		entries[i].MessageID = question.ID
	}
	return entries, nil
}

// confirmed are the facts that a request confirms on the user's behalf.
func confirmed(change *agent.SessionChange, def definition.Definition) (entries []db.SessionEntry, err error) {
	for _, f := range change.Facts {
		if !slices.Contains(def.Session.Facts, f.Key) {
			return nil, refuse(agent.ErrorInvalidRequest, fmt.Sprintf(
				"session.facts: agent %q takes no fact %q from a request; list it under session.facts of the definition", def.Name, f.Key))
		}
		entries = append(entries, db.SessionEntry{Kind: db.EntryFact, Key: f.Key, Value: f.Value})
	}
	for _, name := range change.Forbid {
		if !slices.Contains(def.Tools, name) {
			return nil, refuse(agent.ErrorInvalidRequest, fmt.Sprintf("session.forbid: agent %q has no tool %q", def.Name, name))
		}
	}
	return entries, nil
}

// forbidden is what a request forbids, in words and by a choice.
func forbidden(change *agent.SessionChange, found session.Findings) (entries []db.SessionEntry) {
	for _, p := range found.Prohibitions {
		entries = append(entries, db.SessionEntry{Kind: db.EntryProhibition, Value: p.Text, Tools: p.Tools, Ask: p.Ask})
	}
	for _, name := range change.Forbid {
		entries = append(entries, db.SessionEntry{
			Kind: db.EntryProhibition, Value: "The user has switched off the tool " + name + ".", Tools: []string{name},
		})
	}
	return entries
}

func sameProhibition(a, b db.SessionEntry) bool {
	return a.Value == b.Value && a.Ask == b.Ask && slices.Equal(a.Tools, b.Tools)
}

func prohibitionOf(e db.SessionEntry) session.Prohibition {
	return session.Prohibition{Text: e.Value, Tools: e.Tools, Ask: e.Ask}
}

// prohibitionID names a prohibition: the same one when the run is begun again.
func prohibitionID(req agent.RunRequest, i int) string {
	sum := sha256.Sum256([]byte(req.Tenant + "\n" + req.RunID + "\n" + strconv.Itoa(i)))
	return "p-" + hex.EncodeToString(sum[:6])
}

// vocabulary are the words by which people speak of the definition's tools.
func (r *Runs) vocabulary(def definition.Definition) session.Vocabulary {
	words := session.Vocabulary{}
	for _, name := range def.Tools {
		if spec, known := r.tools.Spec(name); known {
			words[name] = spec.Verbs
		}
	}
	return words
}

// maxShown bounds the prohibitions that cover no tool and are only shown: the
// newest of them.
const maxShown = 20

// standing are the prohibitions as they bind this definition: one that was said
// to another agent, or to an earlier version of this one, covers the tools that
// this one has by the same words.
func (r *Runs) standing(state db.SessionState, def definition.Definition) []db.SessionEntry {
	words := r.vocabulary(def)
	var list []db.SessionEntry
	shown := 0
	for _, e := range slices.Backward(state.Prohibitions) {
		found, err := session.Detect(e.Value, words)
		for _, p := range found.Prohibitions {
			if err == nil && p.Ask == e.Ask {
				e.Tools = append(slices.Clone(e.Tools), p.Tools...)
			}
		}
		slices.Sort(e.Tools)
		e.Tools = slices.Compact(e.Tools)
		if len(e.Tools) == 0 {
			if shown++; shown > maxShown {
				continue
			}
		}
		list = append(list, e)
	}
	slices.Reverse(list)
	return list
}

// prohibited returns the error with which a call of a tool is refused because of
// what the user forbade, or nil. Who wants to be asked is asked before a write;
// before a read nobody is.
func prohibited(standing []db.SessionEntry, spec tool.Spec) *tool.Error {
	list := make([]session.Prohibition, 0, len(standing))
	for _, e := range standing {
		list = append(list, prohibitionOf(e))
	}
	if p, covered := session.Covering(list, spec.Name, spec.Risk == tool.Write); covered {
		return session.Refusal(p)
	}
	return nil
}

// factsOf are the facts that a successful result declares.
func factsOf(spec tool.Spec, call db.ToolCall, result tool.Result) []db.SessionEntry {
	var entries []db.SessionEntry
	if result.ContentType == tool.ContentText {
		return nil
	}
	for _, f := range session.Facts(spec.Facts, result.Content) {
		entries = append(entries, db.SessionEntry{
			Kind: db.EntryFact, Key: f.Key, Value: f.Value, CallID: call.ID, Tool: call.Tool, ToolVersion: call.ToolVersion,
		})
	}
	return entries
}
