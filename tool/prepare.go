package tool

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fairlead/fairlead/agent"
)

// Limits of a Plan.
const (
	MaxResourceBytes = 256
	MaxVersionBytes  = 256
	MaxSummaryBytes  = 4 << 10
)

// errPrepareClaim stands for what a tool cannot rightly say while it prepares.
var errPrepareClaim = errors.New("the tool spoke of an effect while it prepared")

// Prepare makes the plan of a write, and changes nothing. As in Execute, offer,
// canonical form, hash, schema and rights are examined first. Key and Version of
// the call are ignored.
//
// The plan is fit to be shown, stored and hashed. It is valid UTF-8. Resource
// and Version are one line without invisible characters, as the tool gave them.
// Summary has no control characters but newlines, and none that change the
// direction of text; such ones are replaced. A plan that breaks the rest or the
// limits is an *Error of ToolFailed.
//
// Errors are those of Execute, but never ErrOutcomeUnknown: a tool that says so,
// or ErrStale, while it prepares has failed (ToolFailed). Transient failures are
// tried DefaultReadAttempts times in all.
func (r *Registry) Prepare(ctx context.Context, call Call) (Plan, error) {
	e, invocation, err := r.admit(ctx, "prepare", call, Write)
	if err != nil {
		return Plan{}, err
	}
	invocation.Key, invocation.Version = "", ""
	o := perform(ctx, e, invocation, step[Plan]{
		places: e.places, authorize: true, attempts: DefaultReadAttempts, again: transient, do: e.writer.Prepare,
	})
	switch {
	case o.begun && (errors.Is(o.err, ErrOutcomeUnknown) || errors.Is(o.err, ErrStale)):
		return Plan{}, e.failure(ctx, "prepare", seal(errPrepareClaim, o.err))
	case o.err != nil:
		return Plan{}, e.failure(ctx, "prepare", o.err)
	}
	plan, err := o.value.clean()
	if err != nil {
		return Plan{}, &Error{Code: agent.ToolFailed, Message: "the tool gave an invalid plan", Err: err}
	}
	return plan, nil
}

// clean returns the plan as Prepare promises it. Resource and Version are
// identities: one that would have to be changed is refused. So is a summary that
// would have to be cut, because a person confirms all of it.
func (p Plan) clean() (Plan, error) {
	p.Summary = strings.TrimSpace(showable(p.Summary))
	switch {
	case p.Resource == "":
		return Plan{}, errors.New("resource is empty")
	case len(p.Resource) > MaxResourceBytes || !plainLine(p.Resource):
		return Plan{}, fmt.Errorf("resource must be at most %d bytes of one line, without invisible characters or space around it", MaxResourceBytes)
	case len(p.Version) > MaxVersionBytes || !plainLine(p.Version):
		return Plan{}, fmt.Errorf("version must be at most %d bytes of one line, without invisible characters or space around it", MaxVersionBytes)
	case p.Summary == "":
		return Plan{}, errors.New("summary is empty")
	case len(p.Summary) > MaxSummaryBytes:
		return Plan{}, fmt.Errorf("summary must be at most %d bytes", MaxSummaryBytes)
	}
	return p, nil
}

// plainLine reports whether s reads the same wherever it is shown, and differs
// to the eye from what it is not: no invisible characters.
func plainLine(s string) bool {
	return utf8.ValidString(s) && s == strings.TrimSpace(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return misleading(r) || unicode.Is(unicode.Cf, r) })
}

// showable replaces what a person would not see, or see wrongly.
func showable(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, replacement), "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return r
		case r == '\t':
			return ' '
		case misleading(r):
			return utf8.RuneError
		}
		return r
	}, text)
}

// misleading reports whether a character controls a terminal, breaks a line, or
// changes the order in which text is shown.
func misleading(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}
