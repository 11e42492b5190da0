package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// exportFormat names the format of an export. What is in it is never renamed;
// another format has another name.
const exportFormat = "fairlead-memory-export-1"

func (a *app) memoryExportCommand() *cobra.Command {
	var r remembered
	var output string
	c := &cobra.Command{
		Use:   "export --user USER [--output FILE]",
		Short: "Export all that is remembered of a user, as JSON",
		Long: "Exports all that is remembered of a user, in force and past, and what waits for a decision:\n" +
			"each with why, source, scope, validity and versions. Nothing of others and nothing of the\n" +
			"policy is in it. The format is " + exportFormat + ". --output writes a new file that its\n" +
			"owner alone can read.",
		Args: noArguments(""),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := r.check(true); err != nil {
				return err
			}
			if output == "" && c.Flags().Changed("output") {
				return usagef("--output needs the name of a file")
			}
			return a.exportMemory(c.Context(), r, output)
		},
	}
	r.flags(c, true)
	c.Flags().StringVar(&output, "output", "", "file to write, which must not exist yet (default: standard output)")
	return c
}

func (a *app) exportMemory(ctx context.Context, r remembered, output string) error {
	var records []db.MemoryRecord
	var proposals []db.MemoryCandidate
	err := a.readMemory(ctx, "there is no such user", func(ctx context.Context, m memories) (err error) {
		if records, err = allMemories(ctx, m, r, db.MemoryFilter{Past: true}); err != nil {
			return err
		}
		proposals, err = a.openProposals(ctx, m, r, db.MemoryFilter{})
		return err
	})
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := printJSON(&text, toExport(r, time.Now().UTC(), records, proposals), "  "); err != nil {
		return err
	}
	if output == "" {
		_, err := text.WriteTo(a.out)
		return err
	}
	if err := writeNew(output, text.Bytes()); err != nil {
		return err
	}
	if a.json {
		return printJSON(a.out, map[string]string{"format": exportFormat, "output": output}, "  ")
	}
	a.notice("Exported to %s.", output)
	return nil
}

// writeNew writes a file that nobody else can read. What is there is not touched.
func writeNew(name string, text []byte) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return usagef("%s exists already and was not overwritten; name another file", name)
	case err != nil:
		return usagef("the export cannot be written: %v", err)
	}
	_, err = file.Write(text)
	if err := errors.Join(err, file.Close()); err != nil {
		_ = os.Remove(name)
		return fmt.Errorf("write the export: %w", err)
	}
	return nil
}

// exportDocument is the format fairlead-memory-export-1: what a person may have
// of what is remembered of the person. Times are RFC 3339 in UTC. It has nothing
// of other people, who appear as "somebody else", and nothing of the policy's
// rules, of hashes and of programs but their names.
type exportDocument struct {
	Format     string    `json:"format"`
	ExportedAt time.Time `json:"exported_at"`
	Tenant     string    `json:"tenant"`
	User       string    `json:"user"`
	// Memories are ordered by ID.
	Memories []exportedMemory `json:"memories"`
	// Proposals are what nobody has decided about yet.
	Proposals []exportedProposal `json:"proposals"`
}

// exportedMemory is one thing that is remembered.
type exportedMemory struct {
	ID    string              `json:"id"`
	Kind  agent.MemoryKind    `json:"kind"`
	Key   string              `json:"key"`
	Scope memoryScopeDocument `json:"scope"`
	// InForce says that it is used; else it is kept as history.
	InForce bool `json:"in_force"`
	// Versions are the newest first.
	Versions []exportedVersion `json:"versions"`
}

type exportedVersion struct {
	Version int             `json:"version"`
	Status  db.MemoryStatus `json:"status"`
	// Value is absent when it was deleted, or cannot be read any more.
	Value json.RawMessage `json:"value,omitempty"`
	Why   exportedWhy     `json:"why"`
	// ValidFrom and ValidUntil say when it is true, ExpiresAt when it is
	// forgotten by itself; absent is without bound.
	ValidFrom  *time.Time `json:"valid_from,omitempty"`
	ValidUntil *time.Time `json:"valid_until,omitempty"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty"`
	WrittenAt  time.Time  `json:"written_at"`
	EndedAt    *time.Time `json:"ended_at,omitempty"`
	EndedBy    string     `json:"ended_by,omitempty"`
}

// exportedWhy says why something is remembered.
type exportedWhy struct {
	Source       agent.MemorySourceType `json:"source"`
	SourceID     string                 `json:"source_id"`
	Conversation string                 `json:"conversation,omitempty"`
	RunID        string                 `json:"run_id,omitempty"`
	MessageID    string                 `json:"message_id,omitempty"`
	// Quote are the words that it rests on.
	Quote   string `json:"quote,omitempty"`
	Purpose string `json:"purpose,omitempty"`
	// ProposedBy is the program or person, DecidedBy who was asked.
	ProposedBy   string                 `json:"proposed_by"`
	DecidedBy    string                 `json:"decided_by,omitempty"`
	Validation   agent.MemoryValidation `json:"validation,omitempty"`
	ConsentBasis string                 `json:"consent_basis,omitempty"`
	Sensitivity  string                 `json:"sensitivity,omitempty"`
	Repeats      int                    `json:"repeats,omitempty"`
	RepeatedAt   *time.Time             `json:"repeated_at,omitempty"`
}

type exportedProposal struct {
	ID          string              `json:"id"`
	State       agent.MemoryState   `json:"state"`
	Kind        agent.MemoryKind    `json:"kind"`
	Key         string              `json:"key"`
	Scope       memoryScopeDocument `json:"scope"`
	Value       json.RawMessage     `json:"value,omitempty"`
	Retracts    bool                `json:"retracts,omitempty"`
	Why         exportedWhy         `json:"why"`
	ValidFrom   *time.Time          `json:"valid_from,omitempty"`
	ValidUntil  *time.Time          `json:"valid_until,omitempty"`
	ExpiresAt   *time.Time          `json:"expires_at,omitempty"`
	DecideUntil *time.Time          `json:"decide_until,omitempty"`
	ProposedAt  time.Time           `json:"proposed_at"`
}

// toExport keeps what comes from the user or belongs to the user alone: in a
// shared scope others have written beside, and versions of one record may be of
// several people.
func toExport(r remembered, now time.Time, records []db.MemoryRecord, proposals []db.MemoryCandidate) exportDocument {
	document := exportDocument{Format: exportFormat, ExportedAt: now, Tenant: r.tenant, User: r.user, Memories: []exportedMemory{}, Proposals: []exportedProposal{}}
	byID := map[string][]db.MemoryRecord{}
	for _, v := range records {
		if v.User == r.user || v.Subject == r.user {
			byID[v.ID] = append(byID[v.ID], v)
		}
	}
	for id, versions := range byID {
		slices.SortFunc(versions, func(a, b db.MemoryRecord) int { return b.Version - a.Version })
		newest := versions[0]
		exported := exportedMemory{
			ID: id, Kind: newest.Kind, Key: newest.Key, Scope: memoryScopeDocument{newest.Scope.Kind, newest.Scope.ID, newest.Environment},
			InForce: newest.Status == db.MemoryActive, Versions: []exportedVersion{},
		}
		for _, v := range versions {
			exported.Versions = append(exported.Versions, toExportedVersion(r.user, v))
		}
		document.Memories = append(document.Memories, exported)
	}
	slices.SortFunc(document.Memories, func(a, b exportedMemory) int { return strings.Compare(a.ID, b.ID) })
	for _, c := range proposals {
		if c.Room.Scope.User == r.user {
			document.Proposals = append(document.Proposals, toExportedProposal(r.user, c))
		}
	}
	return document
}

func toExportedVersion(user string, v db.MemoryRecord) exportedVersion {
	exported := exportedVersion{
		Version: v.Version, Status: v.Status, Value: v.Value,
		Why: exportedWhy{
			Source: v.SourceType, SourceID: v.SourceID, Conversation: v.Conversation, RunID: v.RunID,
			MessageID: v.Evidence.MessageID, Quote: v.Evidence.Quote, Purpose: v.Evidence.Purpose, ProposedBy: who(user, v.Writer),
			Validation: v.Validation, ConsentBasis: v.ConsentBasis, Sensitivity: v.Sensitivity, Repeats: v.Repeats, RepeatedAt: v.RepeatedAt,
		},
		ValidFrom: v.ValidFrom, ValidUntil: v.ValidUntil, ExpiresAt: v.ExpiresAt, WrittenAt: v.WrittenAt, EndedAt: v.EndedAt,
	}
	exported.Why.DecidedBy, exported.EndedBy = who(user, v.DecidedBy), who(user, v.EndedBy)
	return exported
}

func toExportedProposal(user string, c db.MemoryCandidate) exportedProposal {
	exported := exportedProposal{
		ID: c.ID, State: c.State, Kind: c.Kind, Key: c.Key, Scope: memoryScopeDocument{c.Scope.Kind, c.Scope.ID, c.Room.Scope.Environment},
		Why:         exportedWhy{Source: c.SourceType, SourceID: c.SourceID, Conversation: c.Room.Conversation, RunID: c.RunID, ProposedBy: who(user, c.Writer)},
		DecideUntil: c.ExpiresAt, ProposedAt: c.CreatedAt,
	}
	if content := c.Content; content != nil {
		exported.Value, exported.Why.Purpose = wouldBeKept(*content)
		exported.Retracts, exported.ValidFrom, exported.ValidUntil = content.Retracts, content.ValidFrom, content.ValidUntil
		exported.Why.MessageID, exported.Why.Quote = content.MessageID, content.Quote
		if content.Plan != nil {
			exported.ExpiresAt = content.Plan.ExpiresAt
		}
	}
	return exported
}

// somebodyElse stands for every other person.
const somebodyElse = "somebody else"

// who names a writer: the user, a program without its version, or nobody in
// particular.
func who(user, writer string) string {
	kind, name, _ := strings.Cut(writer, ":")
	switch {
	case kind == "user" && name == user:
		return user
	case kind == "user" || name == "":
		return nameOf(user, writer)
	}
	name, _, _ = strings.Cut(name, "@")
	return kind + " " + name
}

// nameOf is the user's own name, or somebodyElse; empty if there is nobody.
func nameOf(user, name string) string {
	switch name {
	case "":
		return ""
	case user:
		return user
	}
	return somebodyElse
}
