package db

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// What callers tell apart. Errors of this package match one of them with
// errors.Is, or are a *LimitError, a *SchemaError, an agent.TransitionError, or
// a fault of the program.
var (
	// ErrNotFound: no such row in this scope.
	ErrNotFound = errors.New("not found")
	// ErrConflict: somebody else was faster; reading again shows how.
	ErrConflict = errors.New("conflict")
	// ErrUnavailable: the database cannot be reached or takes no work now. The
	// outcome of a transaction that was being committed is unknown.
	ErrUnavailable = errors.New("database unavailable")
	// ErrScope: the scope has an empty field.
	ErrScope = errors.New("scope is incomplete: tenant, user and environment are required")
	// ErrErased: the user was erased. Nothing is remembered of one any more.
	ErrErased = errors.New("the user was erased: nothing is remembered any more")
	// ErrForgotten: the user has had forgotten what was said or observed then. It is
	// an ErrNotFound.
	ErrForgotten = fmt.Errorf("it was forgotten since: %w", ErrNotFound)
)

// Constraints that callers ask for with IsConstraint.
const (
	ConstraintAnswer     = "run_answer_fkey"
	ConstraintTransition = "run_transition_pkey"
)

// SQLSTATE values with a meaning here. FL001 to FL007 are raised by the schema.
const (
	codeUniqueViolation   = "23505"
	codeExclusion         = "23P01"
	codeSerialization     = "40001"
	codeDeadlock          = "40P01"
	codeUndefinedTable    = "42P01"
	codeLockTimeout       = "55P03"
	codeInvalidParameter  = "22023"
	codeTooManyConns      = "53300"
	codeQueryCanceled     = "57014"
	codeIdleInTransaction = "25P03"
	codeReadOnly          = "25006"
	codeNoPrivilege       = "42501"
	codeLimit             = "FL001"
	codeEnded             = "FL002"
	codeKeysChanged       = "FL003"
	codeNotThere          = "FL004"
	codeErased            = "FL005"
	codeDeleted           = "FL006"
	codeForgotten         = "FL007"
)

// LimitError says that a daily limit leaves no room.
type LimitError struct {
	// Limit is one of the Limit constants.
	Limit string
}

// Names of daily limits, as LimitError and a run's detail carry them.
const (
	LimitTenantTokens = "tenant_daily_tokens"
	LimitTenantCost   = "tenant_daily_cost"
	LimitUserTokens   = "user_daily_tokens"
	LimitUserCost     = "user_daily_cost"
)

// Error names the limit.
func (e *LimitError) Error() string { return "daily limit reached: " + e.Limit }

// Error is a translated driver error. Its text holds SQLSTATE and constraint
// name only: never a value, a statement or an address.
type Error struct {
	// Kind is a sentinel of this package, or nil for a fault of the program.
	Kind error
	// Code is the SQLSTATE, empty when the server did not answer.
	Code string
	// Constraint is the violated constraint's name, if any.
	Constraint string
	// cause is kept for context errors only.
	cause error
}

// Error says what happened, safely.
func (e *Error) Error() string {
	text := "database refused the statement"
	if e.Kind != nil {
		text = e.Kind.Error()
	}
	switch {
	case e.Constraint != "":
		return fmt.Sprintf("%s (SQLSTATE %s, %s)", text, e.Code, e.Constraint)
	case e.Code != "":
		return fmt.Sprintf("%s (SQLSTATE %s)", text, e.Code)
	}
	return text
}

// Is matches Kind, and the context error that caused it.
func (e *Error) Is(target error) bool {
	return (e.Kind != nil && errors.Is(e.Kind, target)) || (e.cause != nil && target == e.cause)
}

// IsConstraint reports whether err is a violation of the named constraint.
func IsConstraint(err error, name string) bool {
	var e *Error
	return errors.As(err, &e) && e.Constraint == name
}

// translate turns a driver error into one of this package, once, at its edge.
func translate(err error) error {
	if err == nil {
		return nil
	}
	var (
		schema *SchemaError
		pgErr  *pgconn.PgError
	)
	var mine *Error
	switch {
	case errors.As(err, &mine):
		return err
	case errors.As(err, &schema):
		return schema
	case errors.Is(err, pgx.ErrNoRows):
		return &Error{Kind: ErrNotFound}
	case errors.As(err, &pgErr):
		return translateCode(pgErr)
	case errors.Is(err, context.Canceled):
		return &Error{Kind: context.Canceled}
	case errors.Is(err, context.DeadlineExceeded):
		// The caller's deadline, or the connect timeout: nobody answered in time.
		return &Error{Kind: ErrUnavailable, cause: context.DeadlineExceeded}
	}
	var (
		connect *pgconn.ConnectError
		network net.Error
	)
	if errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || pgconn.Timeout(err) || pgconn.SafeToRetry(err) ||
		strings.Contains(err.Error(), "closed pool") || strings.Contains(err.Error(), "conn closed") {
		return &Error{Kind: ErrUnavailable}
	}
	// Such as an argument that cannot be encoded; the driver's text repeats it.
	return &Error{}
}

func translateCode(pgErr *pgconn.PgError) error {
	e := &Error{Code: pgErr.Code, Constraint: pgErr.ConstraintName}
	switch code := pgErr.Code; {
	case code == codeLimit:
		return &LimitError{Limit: pgErr.Message}
	case code == codeUniqueViolation, code == codeExclusion, code == codeSerialization, code == codeDeadlock, code == codeEnded,
		code == codeKeysChanged, code == codeDeleted:
		e.Kind = ErrConflict
	case code == codeNotThere:
		// Of what is somebody else's nothing more is said than of what is not there.
		return &Error{Kind: ErrNotFound}
	case code == codeErased:
		e.Kind = ErrErased
	case code == codeForgotten:
		return &Error{Kind: ErrForgotten}
	case code == codeInvalidParameter && strings.Contains(pgErr.Message, Role):
		// The role does not exist: the database was never migrated.
		return &SchemaError{Have: 0, Need: schemaVersion}
	case strings.HasPrefix(code, "08"), strings.HasPrefix(code, "57P"), strings.HasPrefix(code, "53"),
		strings.HasPrefix(code, "58"), strings.HasPrefix(code, "28"), strings.HasPrefix(code, "3D"), code == codeNoPrivilege, code == codeTooManyConns, code == codeReadOnly, code == codeQueryCanceled, code == codeIdleInTransaction:
		// A changed password, a missing grant or a database that is being
		// restored is the operator's to mend: runs wait for it.
		e.Kind = ErrUnavailable
	}
	return e
}

// again reports whether the transaction was undone by the server for a reason
// that another try does not meet.
func again(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Code == codeSerialization || e.Code == codeDeadlock)
}

// keysChanged reports whether the transaction was undone because the keys that
// it used are not those of the subject any more.
func keysChanged(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == codeKeysChanged
}
