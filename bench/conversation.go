package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/prompt"
	"github.com/fairlead/fairlead/internal/tokens"
	"github.com/fairlead/fairlead/internal/vault"
	"github.com/fairlead/fairlead/model"
)

const (
	appends     = 400
	reads1000   = 60
	assemblies  = 100
	sealings    = 20_000
	messageSize = 500
	// readSize is how many messages are read back.
	readSize = 1_000
	// assembled is the longest input of an assembled request, in tokens, and
	// history the length of the conversation that it is made from.
	assembled = 24_000
	history   = 2_000
)

// plainTables are what the store is measured against: the same columns without
// encryption, row-level security, and anything around.
const plainTables = `
CREATE TABLE bench_message (
    tenant text NOT NULL, id text NOT NULL, conversation_id text NOT NULL, seq bigint NOT NULL, role text NOT NULL,
    content text NOT NULL, run_id text NOT NULL, parent_id text, created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id), UNIQUE (tenant, conversation_id, seq))`

// conversations measures what a conversation costs beside the plain SQL and the
// plain computation.
func conversations(ctx context.Context, url string, database *db.DB) error {
	plain, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer plain.Close()
	if _, err := plain.Exec(ctx, plainTables); err != nil {
		return fmt.Errorf("make the plain table: %w", err)
	}
	scope := agent.Scope{Tenant: "bench", User: "bench", Environment: "bench"}
	conversation := uuid.NewString()
	if err := begin(ctx, database, scope, conversation); err != nil {
		return err
	}
	if err := appending(ctx, plain, database, scope, conversation); err != nil {
		return err
	}
	if err := reading(ctx, plain, database, scope, conversation); err != nil {
		return err
	}
	if err := assembling(); err != nil {
		return err
	}
	return sealing()
}

// text is a message of about messageSize bytes.
func text(n int) string {
	s := fmt.Sprintf("Message %d: the payment service answered %d requests since ten o'clock and lost %d of them to the pool. ", n, 100+n, n%17)
	return strings.Repeat(s, messageSize/len(s)+1)[:messageSize]
}

// alternating returns the median of each measure; they take turns.
func alternating(n int, measures ...func(i int) error) ([]time.Duration, error) {
	times := make([][]time.Duration, len(measures))
	for i := range n {
		for m, measure := range measures {
			began := time.Now()
			if err := measure(i); err != nil {
				return nil, err
			}
			times[m] = append(times[m], time.Since(began))
		}
	}
	medians := make([]time.Duration, len(measures))
	for m := range measures {
		medians[m] = median(times[m])
	}
	return medians, nil
}

// appending compares an appended message, which numbers itself in its
// conversation and is sealed, with one row that is inserted bare: into the same
// table as its owner, and into the plain one.
func appending(ctx context.Context, plain *pgxpool.Pool, database *db.DB, scope agent.Scope, conversation string) error {
	const (
		plainInsert = `INSERT INTO bench_message (tenant, id, conversation_id, seq, role, content, run_id) VALUES ($1, $2, $3, $4, $5, $6, $7)`
		insert      = `INSERT INTO message (tenant, id, conversation_id, seq, branch, role, content, content_hash, visibility, run_id)
			VALUES ($1, $2, $3, $4, 0, $5, $6, $7, 'visible', $8)`
	)
	bare := uuid.NewString()
	if err := begin(ctx, database, scope, bare); err != nil {
		return err
	}
	seq, hash := int64(0), strings.Repeat("0", 64)
	// As long as a sealed message, and begins like one.
	sealed := make([]byte, messageSize+vault.Overhead)
	sealed[0] = 1
	measure := func(n int) ([]time.Duration, error) {
		return alternating(
			n,
			func(i int) error {
				_, err := plain.Exec(ctx, plainInsert, scope.Tenant, uuid.NewString(), conversation, time.Now().UnixNano(), "user", text(i), "bench")
				return err
			},
			func(i int) error {
				seq++
				copy(sealed[1:], text(i))
				_, err := plain.Exec(ctx, insert, scope.Tenant, uuid.NewString(), bare, seq, "user", sealed, hash, "bench")
				return err
			},
			func(i int) error {
				return database.InTx(ctx, scope, func(tx *db.Tx) error {
					tx.Append(conversation, db.Message{ID: uuid.NewString(), Role: db.RoleUser, Content: text(i), Visibility: db.Visible, RunID: "bench"}, new(int64))
					return nil
				})
			},
		)
	}
	if _, err := measure(20); err != nil { // connections, plans, keys
		return err
	}
	took, err := measure(appends)
	if err != nil {
		return err
	}
	fmt.Printf("BENCH insert_plain %.3f ms\nBENCH insert %.3f ms\nBENCH append %.3f ms\n", ms(took[0]), ms(took[1]), ms(took[2]))
	fmt.Printf("BENCH append_vs_insert %.2f ratio\n", float64(took[2])/float64(took[1]))
	fmt.Printf("BENCH append_vs_plain_table %.2f ratio\n", float64(took[2])/float64(took[0]))
	return nil
}

// begin makes a conversation.
func begin(ctx context.Context, database *db.DB, scope agent.Scope, conversation string) error {
	return database.InTx(ctx, scope, func(tx *db.Tx) error {
		_, err := tx.LoadBegin(ctx, db.BeginQuery{Conversation: conversation, RunID: uuid.NewString(), Day: db.Day(time.Now())})
		return err
	})
}

// reading compares the newest messages, opened, with a bare query for them: of
// the sealed rows in the same table as its owner, and of the plain table.
func reading(ctx context.Context, plain *pgxpool.Pool, database *db.DB, scope agent.Scope, conversation string) error {
	rows := make([][]any, 2*readSize)
	for i := range rows {
		rows[i] = []any{scope.Tenant, uuid.NewString(), conversation, int64(i + 1), "user", text(i), "bench"}
	}
	if _, err := plain.Exec(ctx, "TRUNCATE bench_message"); err != nil {
		return err
	}
	columns := []string{"tenant", "id", "conversation_id", "seq", "role", "content", "run_id"}
	if _, err := plain.CopyFrom(ctx, pgx.Identifier{"bench_message"}, columns, pgx.CopyFromRows(rows)); err != nil {
		return err
	}
	for range 2 * readSize / 100 {
		err := database.InTx(ctx, scope, func(tx *db.Tx) error {
			for i := range 100 {
				tx.Append(conversation, db.Message{ID: uuid.NewString(), Role: db.RoleUser, Content: text(i), Visibility: db.Visible, RunID: "bench"}, new(int64))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if _, err := plain.Exec(ctx, "ANALYZE bench_message, message"); err != nil {
		return err
	}
	query := func(table string) string {
		return "SELECT id, seq, role, content, run_id, parent_id, created_at FROM " + table + ` WHERE tenant = $1 AND conversation_id = $2 ORDER BY seq DESC LIMIT $3`
	}
	measure := func(n int) ([]time.Duration, error) {
		return alternating(
			n,
			func(int) error { return rowsOf[string](ctx, plain, query("bench_message"), scope.Tenant, conversation) },
			func(int) error { return rowsOf[[]byte](ctx, plain, query("message"), scope.Tenant, conversation) },
			func(int) error {
				list, err := database.Messages(ctx, scope, conversation, readSize)
				return errors.Join(err, enough(len(list)))
			},
		)
	}
	if _, err := measure(5); err != nil { // connections and plans
		return err
	}
	took, err := measure(reads1000)
	if err != nil {
		return err
	}
	fmt.Printf("BENCH query1000_plain %.2f ms\nBENCH query1000 %.2f ms\nBENCH read1000 %.2f ms\n", ms(took[0]), ms(took[1]), ms(took[2]))
	fmt.Printf("BENCH read1000_vs_query %.2f ratio\n", float64(took[2])/float64(took[1]))
	fmt.Printf("BENCH read1000_vs_plain_table %.2f ratio\n", float64(took[2])/float64(took[0]))
	return nil
}

// bareMessage is a row with content as it is stored.
type bareMessage[C string | []byte] struct {
	id, role, runID string
	content         C
	seq             int64
	parent          *string
	createdAt       time.Time
}

func rowsOf[C string | []byte](ctx context.Context, plain *pgxpool.Pool, query, tenant, conversation string) error {
	found, err := plain.Query(ctx, query, tenant, conversation, readSize)
	if err != nil {
		return err
	}
	list, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (m bareMessage[C], err error) {
		err = row.Scan(&m.id, &m.seq, &m.role, &m.content, &m.runID, &m.parent, &m.createdAt)
		return m, err
	})
	return errors.Join(err, enough(len(list)))
}

func enough(n int) error {
	if n != readSize {
		return fmt.Errorf("read %d messages instead of %d", n, readSize)
	}
	return nil
}

// assembling makes requests of a long conversation: cold is the first time that
// this process counts the texts, which it does once.
func assembling() error {
	counter, err := tokens.For("o200k_base")
	if err != nil {
		return err
	}
	counter.Count("The vocabulary is loaded.")
	in := prompt.Input{
		System: strings.Repeat("You look after services and answer with evidence. ", 40), Question: "And its error log?",
		Window: 128_000, MaxOutputTokens: 4_000, Tokens: counter,
		Tools: []model.ToolSpec{{Name: "look", Description: "Looks.", Parameters: []byte(`{"type":"object"}`)}},
	}
	in.Budgets.Messages = assembled
	for i := range history {
		role := model.RoleUser
		if i%2 == 1 {
			role = model.RoleAssistant
		}
		in.History = append(in.History, prompt.Message{Seq: int64(i + 1), Role: role, Text: text(i)})
	}
	var made prompt.Prompt
	once := func(budget int64) func(int) error {
		return func(int) (err error) {
			in := in
			in.Budgets.MaxInput, in.Budgets.Messages = budget, budget
			made, err = prompt.Assemble(in)
			return err
		}
	}
	began := time.Now()
	if err := once(assembled)(0); err != nil {
		return err
	}
	cold := time.Since(began)
	if made.Report.Input < assembled*9/10 || made.Report.Input > assembled {
		return fmt.Errorf("assembled %d tokens instead of %d", made.Report.Input, assembled)
	}
	if err := once(2 * assembled)(0); err != nil {
		return err
	}
	took, err := alternating(assemblies, once(assembled), once(2*assembled), func(int) error {
		// As many messages, copied.
		var copied []model.Message
		for _, m := range made.Request.Messages {
			copied = append(copied, model.Message{Role: m.Role, Text: strings.Clone(m.Text)})
		}
		return atLeast(len(copied))
	})
	if err != nil {
		return err
	}
	fmt.Printf("BENCH assemble_24k %.2f ms\nBENCH assemble_24k_cold %.2f ms\n", ms(took[0]), ms(cold))
	fmt.Printf("BENCH assemble_48k_vs_24k %.2f ratio\nBENCH assemble_24k_vs_copy %.1f ratio\n", float64(took[1])/float64(took[0]), 2*float64(took[0])/float64(took[2]))
	return nil
}

func atLeast(n int) error {
	if n == 0 {
		return errors.New("nothing was copied")
	}
	return nil
}

// sealing measures one message sealed and opened.
func sealing() error {
	text, err := vault.GenerateLocal()
	if err != nil {
		return err
	}
	kek, err := vault.Local(text)
	if err != nil {
		return err
	}
	keys, _, err := vault.New(kek).Make(vault.Owner{Tenant: "bench", Subject: "bench"})
	if err != nil {
		return err
	}
	content, place := []byte(strings.Repeat("x", messageSize)), vault.Bind("message", "bench", "1", "content")
	began := time.Now()
	for range sealings {
		sealed, err := keys.Seal(content, place)
		if err != nil {
			return err
		}
		if _, err := keys.Open(sealed, place); err != nil {
			return err
		}
	}
	fmt.Printf("BENCH encryption_per_message %.2f us\n", float64(time.Since(began).Microseconds())/sealings)
	return nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
