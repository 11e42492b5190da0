package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/tokens"
	"github.com/fairlead/fairlead/model"
)

// errandTries is how often a model may answer one errand: the second time it is
// told what was wrong.
const errandTries = 2

// errand is a model call in the background that belongs to no run's budget, such
// as a summary: what it costs counts against the day's limits.
type errand struct {
	entry   model.Entry
	adapter model.Model
	request model.Request
	// day is the one whose usage was reserved, with reserved.
	day      time.Time
	reserved db.Amount
}

// errandOf returns an errand for the model of that catalogue name.
func (r *Runs) errandOf(modelName string) (errand, error) {
	entry, adapter, err := r.models.Resolve(modelName)
	if err != nil {
		return errand{}, fmt.Errorf("%w: model %q is not configured on this worker", errRetry, modelName)
	}
	return errand{entry: entry, adapter: adapter, day: db.Day(r.now()), reserved: db.Amount{CostMicros: noCost(entry)}}, nil
}

// patience is what an errand may take in all.
func (e errand) patience() time.Duration { return errandTries*e.entry.Timeout + bookkeeping }

// ask makes request the errand's, on its model and with at most output tokens in
// each answer, and works out what it has to reserve.
func (e *errand) ask(request model.Request, counter tokens.Counter, output int64) {
	e.request = request
	e.request.Model, e.request.MaxOutputTokens = e.entry.Model, output
	// The second try repeats the first with what was wrong.
	input := errandTries*requestTokens(counter, e.request) + output
	e.reserved.Tokens = input + errandTries*output
	if cost, priced := e.entry.CostOf(input, errandTries*output); priced {
		e.reserved.CostMicros = &cost
	}
}

// reserveErrand reserves an errand's cost: *db.LimitError if a limit leaves no
// room.
func (r *Runs) reserveErrand(ctx context.Context, scope agent.Scope, e *errand, limits db.Limits) error {
	return r.store.InTx(ctx, scope, func(tx Tx) error {
		tx.ReserveDaily(e.day, e.reserved, limits.Or(r.limits))
		return nil
	})
}

// releaseErrand gives back what was reserved and not billed.
func (r *Runs) releaseErrand(ctx context.Context, scope agent.Scope, e *errand, billed db.Amount) {
	ctx, cancel := aside(ctx)
	defer cancel()
	err := r.store.InTx(ctx, scope, func(tx Tx) error {
		tx.SettleDaily(e.day, e.reserved, billed)
		return nil
	})
	if err != nil {
		r.log.Warn("reservation of a model call in the background left open", zap.String("cause", err.Error()))
	}
}

// bought is what an errand came to.
type bought struct {
	billed   db.Amount
	revision string
	// failure is empty if an answer was accepted, else a short stable code.
	failure string
}

// run has the model answer until accept takes an answer. accept returns what is
// wrong, as a code and in words for the model. Billed is set in any case; the
// error says that nobody answered, which is no failure of the errand.
func (e *errand) run(ctx, work context.Context, accept func(model.Response, string) (code, feedback string)) (bought, error) {
	b := bought{billed: db.Amount{CostMicros: noCost(e.entry)}}
	request := e.request
	for range errandTries {
		a := generate(work, e.adapter, request)
		p := purchase{entry: e.entry}
		p.attempt.Reserved = e.half()
		p.bill(a)
		b.billed = add(b.billed, *p.attempt.Billed)
		b.revision = storable(a.response.Revision)
		switch {
		case a.crash != "":
			b.failure = "model_panic"
			return b, nil
		case a.err != nil && ctx.Err() != nil:
			return b, ctx.Err()
		case a.err != nil && errors.Is(context.Cause(work), errStopping):
			return b, fmt.Errorf("%w: %w", errRetry, errStopping)
		case refusesErrand(a.err):
			b.failure = "model_refused"
			return b, nil
		case a.err != nil:
			// An outage does not count as a failure.
			return b, fmt.Errorf("%w: the model gave no answer", errRetry)
		}
		text := storable(a.response.Text)
		code, feedback := accept(a.response, text)
		if b.failure = code; code == "" {
			return b, nil
		}
		request.Messages = append(request.Messages[:len(e.request.Messages):len(e.request.Messages)],
			model.Message{Role: model.RoleAssistant, Text: text}, model.Message{Role: model.RoleUser, Text: feedback})
	}
	return b, nil
}

// refusesErrand reports whether a model would say the same to the same request
// again.
func refusesErrand(err error) bool {
	var failed *model.Error
	if !errors.As(err, &failed) {
		return false
	}
	switch failed.Kind {
	case model.KindInvalidRequest, model.KindContextOverflow, model.KindContentPolicy, model.KindMalformed:
		return true
	default:
		return false
	}
}

// half is what one of the tries reserved.
func (e *errand) half() db.Amount {
	amount := db.Amount{Tokens: e.reserved.Tokens / errandTries}
	if e.reserved.CostMicros != nil {
		cost := *e.reserved.CostMicros / errandTries
		amount.CostMicros = &cost
	}
	return amount
}

func noCost(entry model.Entry) *int64 {
	if !entry.Priced() {
		return nil
	}
	return new(int64)
}

func add(a, b db.Amount) db.Amount {
	sum := db.Amount{Tokens: a.Tokens + b.Tokens}
	if a.CostMicros != nil && b.CostMicros != nil {
		cost := *a.CostMicros + *b.CostMicros
		sum.CostMicros = &cost
	}
	return sum
}

// requestTokens counts what a request takes.
func requestTokens(counter tokens.Counter, request model.Request) int64 {
	const overhead = 16
	n := counter.Count(request.System) + counter.Count(string(request.FinalSchema)) + overhead
	for _, m := range request.Messages {
		n += counter.Count(m.Text) + overhead
	}
	return n
}
