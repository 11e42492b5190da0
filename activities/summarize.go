package activities

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/summary"
	"github.com/fairlead/fairlead/internal/tokens"
	"github.com/fairlead/fairlead/model"
)

const (
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
	errand
	conversation db.Conversation
	source       []summary.Message
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
	e, err := r.errandOf(def.Summary.Bounds(def.Model).Model)
	if err != nil {
		return out, err
	}
	work, done := r.bound(ctx, r.now().Add(e.patience()), 0)
	defer done()
	d, limits, err := r.due(work, in, def, digestion{errand: e})
	if errors.Is(err, db.ErrNotFound) {
		return agent.SummarizeOutput{Failure: "conversation_missing"}, nil
	}
	if err != nil || d == nil {
		return out, err
	}
	err = r.reserveErrand(ctx, in.Scope, &d.errand, limits)
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
			r.releaseErrand(ctx, in.Scope, &d.errand, billed)
		}
	}()
	made, err := d.digested(ctx, work)
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
	d.conversation = state.Conversation
	for _, m := range state.Messages {
		d.source = append(d.source, summary.Message{Seq: m.Seq, Role: string(m.Role), Text: m.Content})
	}
	output := min(d.entry.MaxOutputTokens, d.entry.ContextWindow/4, maxSummaryOutput)
	source, request, err := summary.Next(d.source, counter, d.entry.ContextWindow-output)
	switch {
	case errors.Is(err, summary.ErrTooDense):
		// What nobody can summarize must not hold up what comes after it.
		d.source, d.skipped = d.source[:1], true
	case err != nil:
		return nil, db.Limits{}, fmt.Errorf("summarize: %w", err)
	default:
		d.source = source
		d.ask(request, counter, output)
	}
	d.more = summaryDue(def, state.Unsummarized-len(d.source), 0)
	return &d, state.Limits, nil
}

// digested has the model write the summary and checks it. The summary that it
// returns has its cost in any case.
func (d *digestion) digested(ctx, work context.Context) (db.Summary, error) {
	stored := db.Summary{
		FromSeq: d.source[0].Seq, ToSeq: d.source[len(d.source)-1].Seq, Status: db.SummaryFailed,
		Model: d.entry.Name, PromptVersion: summary.PromptVersion, Billed: db.Amount{CostMicros: noCost(d.entry)},
	}
	if d.skipped {
		stored.Status = db.SummarySkipped
		return stored, nil
	}
	b, err := d.run(ctx, work, func(response model.Response, text string) (string, string) {
		made, failed := accept(d.source, response, text)
		if failed != nil {
			return string(failed.Code), failed.Feedback()
		}
		stored.Status, stored.Content = db.SummaryChecked, made
		return "", ""
	})
	stored.Billed, stored.Revision, stored.Failure = b.billed, b.revision, b.failure
	return stored, err
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
