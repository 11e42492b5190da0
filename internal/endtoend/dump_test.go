package endtoend

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// dump is a database as a thief has it: each value of each table.
type dump struct {
	// rows counts what was looked at.
	rows int
	// found counts, for each text that was looked for, the columns that have it.
	found map[string]map[string]int
}

// takeDump looks for texts in every column of every table, as text and, if it
// holds bytes, as bytes. since, if not empty, is a transaction of the server, and
// rows that are older are left out.
func takeDump(t testing.TB, ctx context.Context, databaseURL, since string, texts map[string]forms) dump {
	t.Helper()
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	// A server may have no compiler, and tables that have grown long.
	config.RuntimeParams["jit"] = "off"
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, `SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')`)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) == 0 {
		t.Fatalf("%d tables, %v", len(tables), err)
	}
	d := dump{found: map[string]map[string]int{}}
	for _, table := range tables {
		query := "SELECT * FROM " + table
		if since != "" {
			query += " WHERE age(xmin) <= age('" + since + "'::xid)"
		}
		// The simple protocol gives every value as text.
		results := conn.PgConn().Exec(ctx, query)
		for results.NextResult() {
			for result := results.ResultReader(); result.NextRow(); {
				d.rows++
				for i, value := range result.Values() {
					d.look(table+"."+result.FieldDescriptions()[i].Name, result.FieldDescriptions()[i].DataTypeOID, string(value), texts)
				}
			}
		}
		if err := results.Close(); err != nil {
			t.Fatalf("%s: %v", table, err)
		}
	}
	return d
}

func (d dump) look(column string, kind uint32, value string, texts map[string]forms) {
	content := value
	if kind == pgtype.ByteaOID {
		if raw, err := hex.DecodeString(strings.TrimPrefix(value, `\x`)); err == nil {
			content = string(raw)
		}
	}
	for name, f := range texts {
		if f.in(value) || f.in(content) {
			if d.found[name] == nil {
				d.found[name] = map[string]int{}
			}
			d.found[name][column]++
		}
	}
}

// beside returns the URL of another database of the same server.
func (w *world) beside(database string) string {
	w.Helper()
	u, err := url.Parse(w.url)
	if err != nil {
		w.Fatal(err)
	}
	u.Path = "/" + database
	return u.String()
}

// transaction returns one that begins and ends now, as takeDump takes it.
func (w *world) transaction() (id string) {
	w.Helper()
	if err := w.owner.QueryRow(w.ctx, "SELECT pg_current_xact_id()::xid::text").Scan(&id); err != nil {
		w.Fatal(err)
	}
	return id
}

// pgDump is what pg_dump writes, or nothing if there is none for this server.
func (w *world) pgDump() string {
	w.Helper()
	// The one beside the server's program is of its version.
	var program string
	if err := w.owner.QueryRow(w.ctx, "SELECT split_part(pg_read_file('postmaster.opts'), ' ', 1)").Scan(&program); err != nil {
		w.Fatal(err)
	}
	for _, program := range []string{filepath.Join(filepath.Dir(program), "pg_dump"), "pg_dump"} {
		var out, said bytes.Buffer
		cmd := exec.CommandContext(w.ctx, program, "--dbname", w.url)
		cmd.Stdout, cmd.Stderr = &out, &said
		if err := cmd.Run(); err == nil {
			return out.String()
		}
		w.Logf("%s: %s", program, bytes.TrimSpace(said.Bytes()))
	}
	return ""
}

// wantAbsent fails if a dump has a secret, or lacks what it must have to prove
// anything.
func (d dump) wantAbsent(t testing.TB, database, secret, control string) {
	t.Helper()
	if len(d.found[control]) == 0 {
		t.Errorf("the %s is in none of %d rows of %s, which proves nothing", control, d.rows, database)
	}
	if where := d.found[secret]; len(where) > 0 {
		t.Errorf("the %s is in %s: %s", secret, database, fmt.Sprint(where))
	}
	t.Logf("%s: %d rows, the %s is in %d columns", database, d.rows, control, len(d.found[control]))
}
