package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/session"
)

// entryDocument is one thing that holds in a conversation.
type entryDocument struct {
	Version int64        `json:"version"`
	Kind    db.EntryKind `json:"kind"`
	// Key is the key of a fact, or the ID by which a prohibition is lifted.
	Key string `json:"key"`
	// Value is content.
	Value string `json:"value"`
	// Tools are covered by a prohibition, "*" being all writes; Ask says that it
	// demands to be asked.
	Tools   []string  `json:"tools,omitempty"`
	Ask     bool      `json:"ask,omitempty"`
	Message string    `json:"message_id,omitempty"`
	RunID   string    `json:"run_id,omitempty"`
	CallID  string    `json:"call_id,omitempty"`
	Tool    string    `json:"tool,omitempty"`
	At      time.Time `json:"at"`
}

type sessionDocument struct {
	Conversation string          `json:"conversation"`
	Facts        []entryDocument `json:"facts"`
	Prohibitions []entryDocument `json:"prohibitions"`
}

func (a *app) sessionCommand() *cobra.Command {
	var scope agent.Scope
	c := &cobra.Command{
		Use:   "session CONVERSATION --user USER --environment ENVIRONMENT",
		Short: "Show what holds in a conversation: facts and standing prohibitions",
		Long: "Shows the facts that tools and the user settled in a conversation, each with its source, and\n" +
			"what the user forbade. It is content, so the encryption key is needed. The ID of a prohibition\n" +
			"is what starter run --lift, or session.lift of a request, names when the user takes it back.",
		Args: conversationArgs("CONVERSATION"),
		RunE: func(c *cobra.Command, args []string) error {
			if !agent.ValidID(scope.Tenant) || !agent.ValidID(scope.User) || !agent.ValidID(scope.Environment) {
				return usagef("--tenant, --user and --environment say whose conversation it is: each is 1 to 128 ASCII letters, digits or . _ : @ -")
			}
			return a.session(c.Context(), scope, args[0])
		},
	}
	c.Flags().StringVar(&scope.Tenant, "tenant", defaultTenant, "tenant that owns the conversation")
	c.Flags().StringVar(&scope.User, "user", "", "user whose conversation it is")
	c.Flags().StringVar(&scope.Environment, "environment", "", "environment of the conversation")
	return c
}

func (a *app) session(ctx context.Context, scope agent.Scope, conversation string) error {
	if err := a.requireContent(); err != nil {
		return err
	}
	database, err := a.database(ctx)
	if err != nil {
		return err
	}
	defer database.Close()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	state, err := database.Session(ctx, scope, conversation)
	if errors.Is(err, db.ErrNotFound) {
		return usagef("%s, or it belongs to another user or environment", noConversation(scope.Tenant, conversation))
	}
	if err != nil {
		return a.explain(err, "", scope.Tenant)
	}
	document := sessionDocument{Conversation: conversation, Facts: entries(state.Facts), Prohibitions: entries(state.Prohibitions)}
	if a.json {
		return printJSON(a.out, document, "  ")
	}
	a.heading("Facts")
	var rows [][]cell
	for _, f := range document.Facts {
		source := "confirmed by the user"
		if f.Tool != "" {
			source = fmt.Sprintf("%s, call %s of run %s", f.Tool, f.CallID, f.RunID)
		}
		rows = append(rows, row("  "+f.Key, oneLine(printable(f.Value), 120), "version "+strconv.FormatInt(f.Version, 10), source))
	}
	a.table(a.out, rows)
	a.heading("Standing prohibitions")
	for _, p := range document.Prohibitions {
		fmt.Fprintf(a.out, "  %s  %s  %s\n", a.paint(bold, p.Key), effect(p), clock(p.At))
		fmt.Fprintln(a.out, a.paint(dim, "      "+oneLine(printable(p.Value), 400)))
	}
	return nil
}

// effect says what a prohibition does.
func effect(p entryDocument) string {
	tools := slices.Clone(p.Tools)
	for i, tool := range tools {
		if tool == session.AllWrites {
			tools[i] = "all writes"
		}
	}
	covered := printable(strings.Join(tools, ", "))
	switch {
	case p.Ask && covered == "":
		return "the user wants to be asked"
	case p.Ask:
		return "the user wants to be asked about " + covered
	case covered == "":
		return "shown to the model"
	}
	return "forbids " + covered
}

func entries(list []db.SessionEntry) []entryDocument {
	documents := make([]entryDocument, 0, len(list))
	for _, e := range list {
		documents = append(documents, entryDocument{
			Version: e.Version, Kind: e.Kind, Key: e.Key, Value: e.Value, Tools: e.Tools, Ask: e.Ask,
			Message: e.MessageID, RunID: e.RunID, CallID: e.CallID, Tool: e.Tool, At: e.At,
		})
	}
	return documents
}
