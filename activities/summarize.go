package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/summary"
	"github.com/fairlead/fairlead/internal/tokens"
	"github.com/fairlead/fairlead/model"
)

const (
	// summaryTries is how often the model may write one summary: the second time
	// it is told what the checks found.
	summaryTries = 2
	// maxSummaryOutput bounds the summary itself, in tokens.
	maxSummaryOutput = 4_000
	// maxSummaryFailures is how many summaries of one range may fail before it
	// is left alone until the conversation has grown by as much again.
	maxSummaryFailures = 3
)

// summaryDue reports whether a conversation has enough messages without a
// summary.
func summaryDue(def definition.Definition, unsummarized, failures int) bool {
	rules := def.Summary.Bounds(def.Model)
	beyond := unsummarized - rules.After - rules.Keep
	return !rules.Off && beyond >= 0 && failures < maxSummaryFailures+beyond/rules.After
}

// Summarize makes the next summary of a conversation that is due. What the
// checks do not accept is kept for people with its code and used for nothing.
func (r *Runs) Summarize(ctx context.Context, in agent.SummarizeInput) (out agent.SummarizeOutput, err error) {
	ref := agent.RunRef{Scope: in.Scope}
	defer r.contain(agent.ActivitySummarize, ref, &err)
	out, err = r.summarize(ctx, in)
	return out, r.fault(ctx, agent.ActivitySummarize, ref, err)
}

// digestion is one summary in the making.
type digestion struct {
	conversation db.Conversation
	source       []summary.Message
	entry        model.Entry
	adapter      model.Model
	request      model.Request
	// day is the one whose usage was reserved, with reserved.
	day      time.Time
	reserved db.Amount
	// more says that another range is due after this one.
	more bool
	// skipped says that the one message in source cannot be summarized.
	skipped bool
}

func (r *Runs) summarize(ctx context.Context, in agent.SummarizeInput) (out agent.SummarizeOutput, err error) {
	def, err := r.definition(ctx, in.DefinitionDigest)
	if err != nil {
		return out, err
	}
	rules := def.Summary.Bounds(def.Model)
	entry, adapter, err := r.models.Resolve(rules.Model)
	if err != nil {
		return out, fmt.Errorf("%w: model %q is not configured on this worker", errRetry, rules.Model)
	}
	work, done := r.bound(ctx, r.now().Add(summaryTries*entry.Timeout+bookkeeping), 0)
	defer done()
	d, limits, err := r.due(work, in, def, digestion{entry: entry, adapter: adapter})
	if errors.Is(err, db.ErrNotFound) {
		return agent.SummarizeOutput{Failure: "conversation_missing"}, nil
	}
	if err != nil || d == nil {
		return out, err
	}
	err = r.reserveSummary(ctx, in.Scope, d, limits)
	if reached := new(db.LimitError); errors.As(err, &reached) {
		return agent.SummarizeOutput{Failure: reached.Limit}, nil
	}
	if err != nil {
		return out, err
	}
	// Whatever becomes of it, a worker that lives gives back what it reserved.
	billed, stored := d.reserved, false
	defer func() {
		if !stored {
			r.releaseSummary(ctx, in.Scope, d, billed)
		}
	}()
	made, err := r.digested(ctx, work, d)
	billed = made.Billed
	if err != nil {
		return out, err
	}
	err = r.insist(ctx, func(ctx context.Context) error {
		tctx, cancel := aside(ctx)
		defer cancel()
		return r.store.InTx(tctx, in.Scope, func(tx Tx) error {
			tx.StoreSummary(d.conversation, made)
			tx.SettleDaily(d.day, d.reserved, made.Billed)
			return nil
		})
	})
	out = agent.SummarizeOutput{FromSeq: made.FromSeq, ToSeq: made.ToSeq, Failure: made.Failure}
	if errors.Is(err, db.ErrConflict) {
		// Another one made it; this one's cost counts all the same.
		return out, nil
	}
	if err != nil {
		return out, err
	}
	stored = true
	out.More = d.more && made.Status != db.SummaryFailed
	r.log.Info("conversation summarized", zap.String("conversation", in.Conversation), zap.Int64("from_seq", out.FromSeq), zap.Int64("to_seq", out.ToSeq),
		zap.String("status", string(made.Status)), zap.String("failure", out.Failure), zap.Int64("tokens", made.Billed.Tokens), zap.Bool("more", out.More))
	return out, nil
}

// due reads what is to be summarized and makes the request for it. It returns
// nil if nothing is due.
func (r *Runs) due(ctx context.Context, in agent.SummarizeInput, def definition.Definition, d digestion) (*digestion, db.Limits, error) {
	rules := def.Summary.Bounds(def.Model)
	counter, err := tokens.For(d.entry.Tokenizer)
	if err != nil {
		return nil, db.Limits{}, fmt.Errorf("summarize: %w", err)
	}
	var state db.SummaryState
	err = r.store.InTx(ctx, in.Scope, func(tx Tx) (err error) {
		state, err = tx.LoadSummary(ctx, in.Conversation, rules.After)
		return err
	})
	// The count may be from before another summary was stored, and the messages
	// from after it.
	if err != nil || !summaryDue(def, state.Unsummarized, state.Failures) || len(state.Messages) < rules.After {
		return nil, db.Limits{}, err
	}
	d.conversation, d.day = state.Conversation, db.Day(r.now())
	for _, m := range state.Messages {
		d.source = append(d.source, summary.Message{Seq: m.Seq, Role: string(m.Role), Text: m.Content})
	}
	output := min(d.entry.MaxOutputTokens, d.entry.ContextWindow/4, maxSummaryOutput)
	source, request, err := summary.Next(d.source, counter, d.entry.ContextWindow-output)
	switch {
	case errors.Is(err, summary.ErrTooDense):
		// What nobody can summarize must not hold up what comes after it.
		d.source, d.skipped, d.reserved.CostMicros = d.source[:1], true, noCost(d.entry)
	case err != nil:
		return nil, db.Limits{}, fmt.Errorf("summarize: %w", err)
	default:
		d.source, d.request = source, request
		d.request.Model, d.request.MaxOutputTokens = d.entry.Model, output
		// The second try repeats the first with what was wrong.
		input := summaryTries*requestTokens(counter, d.request) + output
		d.reserved.Tokens = input + summaryTries*output
		if cost, priced := d.entry.CostOf(input, summaryTries*output); priced {
			d.reserved.CostMicros = &cost
		}
	}
	d.more = summaryDue(def, state.Unsummarized-len(d.source), 0)
	return &d, state.Limits, nil
}

func (r *Runs) reserveSummary(ctx context.Context, scope agent.Scope, d *digestion, limits db.Limits) error {
	return r.store.InTx(ctx, scope, func(tx Tx) error {
		tx.ReserveDaily(d.day, d.reserved, limits.Or(r.limits))
		return nil
	})
}

// digested has the model write the summary and checks it. The summary that it
// returns has its cost in any case.
func (r *Runs) digested(ctx, work context.Context, d *digestion) (db.Summary, error) {
	stored := db.Summary{
		FromSeq: d.source[0].Seq, ToSeq: d.source[len(d.source)-1].Seq, Status: db.SummaryFailed,
		Model: d.entry.Name, PromptVersion: summary.PromptVersion, Billed: db.Amount{CostMicros: noCost(d.entry)},
	}
	if d.skipped {
		stored.Status = db.SummarySkipped
		return stored, nil
	}
	request := d.request
	for range summaryTries {
		a := generate(work, d.adapter, request)
		bought := purchase{entry: d.entry}
		bought.attempt.Reserved = d.half()
		bought.bill(a)
		stored.Billed = add(stored.Billed, *bought.attempt.Billed)
		stored.Revision = storable(a.response.Revision)
		switch {
		case a.crash != "":
			stored.Failure = "model_panic"
			return stored, nil
		case a.err != nil && ctx.Err() != nil:
			return stored, ctx.Err()
		case a.err != nil && errors.Is(context.Cause(work), errStopping):
			return stored, fmt.Errorf("%w: %w", errRetry, errStopping)
		case refusesSummary(a.err):
			stored.Failure = "model_refused"
			return stored, nil
		case a.err != nil:
			// An outage does not count as a failure of the summary.
			return stored, fmt.Errorf("%w: the model gave no summary", errRetry)
		}
		text := storable(a.response.Text)
		made, failed := accept(d.source, a.response, text)
		if failed == nil {
			stored.Status, stored.Failure, stored.Content = db.SummaryChecked, "", made
			return stored, nil
		}
		stored.Failure = string(failed.Code)
		request.Messages = append(request.Messages[:len(d.request.Messages):len(d.request.Messages)],
			model.Message{Role: model.RoleAssistant, Text: text}, model.Message{Role: model.RoleUser, Text: failed.Feedback()})
	}
	return stored, nil
}

// refusesSummary reports whether a model would say the same to the same request
// again.
func refusesSummary(err error) bool {
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

// accept returns the summary in the form in which it is stored, or what is wrong
// with it.
func accept(source []summary.Message, response model.Response, text string) ([]byte, *summary.Failure) {
	if response.Finish != model.FinishStop {
		return nil, summary.Malformed()
	}
	made, err := summary.Parse(text)
	if err != nil {
		return nil, summary.Malformed()
	}
	if failed := summary.Check(source, made); failed != nil {
		return nil, failed
	}
	return made.Bytes(), nil
}

// releaseSummary gives back what was reserved for a summary that is not stored.
func (r *Runs) releaseSummary(ctx context.Context, scope agent.Scope, d *digestion, billed db.Amount) {
	ctx, cancel := aside(ctx)
	defer cancel()
	err := r.store.InTx(ctx, scope, func(tx Tx) error {
		tx.SettleDaily(d.day, d.reserved, billed)
		return nil
	})
	if err != nil {
		r.log.Warn("reservation of a summary left open", zap.String("cause", err.Error()))
	}
}

// half is what one of the tries reserved.
func (d *digestion) half() db.Amount {
	amount := db.Amount{Tokens: d.reserved.Tokens / summaryTries}
	if d.reserved.CostMicros != nil {
		cost := *d.reserved.CostMicros / summaryTries
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
