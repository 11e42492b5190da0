package memstore

import (
	"strings"
	"unicode/utf8"

	"github.com/fairlead/fairlead/db"
)

// missing is what package db makes of a query without a row.
var missing = &db.Error{Kind: db.ErrNotFound}

// conflict is a violated primary key or unique index.
func conflict(constraint string) error {
	return &db.Error{Kind: db.ErrConflict, Code: "23505", Constraint: constraint}
}

// absent is a violated foreign key.
func absent(constraint string) error { return &db.Error{Code: "23503", Constraint: constraint} }

// check is a CHECK constraint.
func check(holds bool, constraint string) error {
	if holds {
		return nil
	}
	return &db.Error{Code: "23514", Constraint: constraint}
}

// texts refuses what PostgreSQL cannot keep as text.
func texts(values ...string) error {
	for _, v := range values {
		if !utf8.ValidString(v) || strings.Contains(v, "\x00") {
			return &db.Error{Code: "22021"}
		}
	}
	return nil
}

// isHash reports whether s is a SHA-256 in hex.
func isHash(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}

// first returns the first error.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
