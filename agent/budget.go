package agent

import (
	"errors"
	"fmt"
	"time"
)

// Budget bounds one run (RUN-3, RUN-11). Nothing begins beyond a limit. Input
// tokens are estimated before a call and counted after it, so tokens and cost can
// be passed by what one call was underestimated, and no more.
type Budget struct {
	// MaxSteps is the number of model responses that the run may take.
	MaxSteps int `json:"max_steps"`
	// MaxToolCalls is the number of tool calls that may be executed.
	MaxToolCalls int `json:"max_tool_calls"`
	// MaxTokens is the sum of input and output tokens over all attempts.
	MaxTokens int64 `json:"max_tokens"`
	// MaxCostMicros is in millionths of a US dollar. Zero means that no cost
	// limit was agreed; tokens still bound the run.
	MaxCostMicros int64 `json:"max_cost_micros"`
	// Timeout is the time from the start of the workflow to the deadline.
	Timeout time.Duration `json:"timeout_ns"`
}

// Validate returns an error that names the first field out of range.
func (b Budget) Validate() error {
	switch {
	case b.MaxSteps <= 0:
		return fmt.Errorf("max_steps is %d: it must be at least 1", b.MaxSteps)
	case b.MaxToolCalls < 0:
		return fmt.Errorf("max_tool_calls is %d: it must not be negative", b.MaxToolCalls)
	case b.MaxTokens <= 0:
		return fmt.Errorf("max_tokens is %d: it must be at least 1", b.MaxTokens)
	case b.MaxCostMicros < 0:
		return fmt.Errorf("max_cost_micros is %d: it must not be negative", b.MaxCostMicros)
	case b.Timeout <= 0:
		return fmt.Errorf("timeout is %s: it must be positive", b.Timeout)
	}
	return nil
}

// BudgetOverride lets a request tighten the definition's budget, never widen
// it. A nil field keeps the definition's value; a field that is present must be
// positive, so that a forgotten zero is an error and not "no limit".
type BudgetOverride struct {
	MaxSteps      *int           `json:"max_steps,omitempty"`
	MaxToolCalls  *int           `json:"max_tool_calls,omitempty"`
	MaxTokens     *int64         `json:"max_tokens,omitempty"`
	MaxCostMicros *int64         `json:"max_cost_micros,omitempty"`
	Timeout       *time.Duration `json:"timeout_ns,omitempty"`
}

// Validate refuses zero and negative values.
func (o *BudgetOverride) Validate() error {
	if o == nil {
		return nil
	}
	var errs []error
	positive := func(name string, present bool, value int64) {
		if present && value <= 0 {
			errs = append(errs, fmt.Errorf("%s is %d: give a positive number, or leave it out to keep the definition's limit", name, value))
		}
	}
	positive("max_steps", o.MaxSteps != nil, int64(deref(o.MaxSteps)))
	positive("max_tool_calls", o.MaxToolCalls != nil, int64(deref(o.MaxToolCalls)))
	positive("max_tokens", o.MaxTokens != nil, deref(o.MaxTokens))
	positive("max_cost_micros", o.MaxCostMicros != nil, deref(o.MaxCostMicros))
	positive("timeout", o.Timeout != nil, int64(deref(o.Timeout)))
	return errors.Join(errs...)
}

// Apply returns base tightened by o: each limit is the smaller of the two.
func (o *BudgetOverride) Apply(base Budget) Budget {
	if o == nil {
		return base
	}
	tighten(&base.MaxSteps, o.MaxSteps)
	tighten(&base.MaxToolCalls, o.MaxToolCalls)
	tighten(&base.MaxTokens, o.MaxTokens)
	tighten(&base.Timeout, o.Timeout)
	if o.MaxCostMicros != nil && (base.MaxCostMicros == 0 || *o.MaxCostMicros < base.MaxCostMicros) {
		base.MaxCostMicros = *o.MaxCostMicros
	}
	return base
}

func tighten[T int | int64 | time.Duration](limit, wish *T) {
	if wish != nil && *wish < *limit {
		*limit = *wish
	}
}

func deref[T any](p *T) (zero T) {
	if p == nil {
		return zero
	}
	return *p
}

// Usage is what model calls consumed. The zero value is "nothing yet".
type Usage struct {
	// Attempts counts model attempts, failed and lost ones included.
	Attempts int `json:"attempts"`
	// InputTokens, CachedInputTokens and OutputTokens are as reported by the
	// provider. Cached tokens are part of the input tokens.
	InputTokens       int64 `json:"input_tokens"`
	CachedInputTokens int64 `json:"cached_input_tokens"`
	OutputTokens      int64 `json:"output_tokens"`
	// BilledTokens is what counts against MaxTokens: the reported tokens, or
	// for an attempt whose usage is unknown, the amount that was reserved.
	BilledTokens int64 `json:"billed_tokens"`
	// CostMicros is the known cost in millionths of a US dollar; for attempts
	// of unknown usage it holds the cost of the reserved amount.
	CostMicros int64 `json:"cost_micros"`
	// UnknownAttempts counts attempts whose usage was not reported.
	UnknownAttempts int `json:"unknown_attempts"`
	// UnpricedAttempts counts attempts on a model without a price. When it is
	// not zero, CostMicros is a lower bound and the true cost is unknown.
	UnpricedAttempts int `json:"unpriced_attempts"`
}

// Add returns the sum of u and v.
func (u Usage) Add(v Usage) Usage {
	u.Attempts += v.Attempts
	u.InputTokens += v.InputTokens
	u.CachedInputTokens += v.CachedInputTokens
	u.OutputTokens += v.OutputTokens
	u.BilledTokens += v.BilledTokens
	u.CostMicros += v.CostMicros
	u.UnknownAttempts += v.UnknownAttempts
	u.UnpricedAttempts += v.UnpricedAttempts
	return u
}
