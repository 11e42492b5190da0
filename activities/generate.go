package activities

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/model"
)

const (
	// leaveAfter is how long an adapter whose context ended may take to return
	// before it is left to itself.
	leaveAfter = time.Second
	// maxCalls is the most calls of one response.
	maxCalls = 64
)

// answer is what came back from a model.
type answer struct {
	response model.Response
	err      error
	// started says that some output had arrived.
	started bool
	// crash is the type of a panic's value; the value may hold content.
	crash string
}

// generate makes one attempt. Panics are contained, and an adapter that ignores
// its context is abandoned.
func generate(ctx context.Context, m model.Model, req model.Request) answer {
	var started atomic.Bool
	done := make(chan answer, 1)
	go func() {
		a := answer{crash: "runtime.Goexit"}
		defer func() {
			if a.crash != "" {
				if p := recover(); p != nil {
					a.crash = fmt.Sprintf("%T", p)
				}
			}
			done <- a
		}()
		response, err := m.Generate(ctx, req, func(model.Delta) { started.Store(true) })
		a = answer{response: response, err: err}
	}()
	var a answer
	select {
	case a = <-done:
	case <-ctx.Done():
		leave := time.NewTimer(leaveAfter)
		defer leave.Stop()
		select {
		case a = <-done:
		case <-leave.C:
			a.err = ctx.Err()
		}
	}
	a.started = started.Load()
	return a
}

// verdict is what an answer amounts to.
type verdict struct {
	status  db.AttemptStatus
	failure *agent.Failure
	// response is what is kept for the next requests.
	response *db.Response
	// final is the text of a valid final answer.
	final string
	calls []db.ResponseCall
}

func failure(code agent.FailureCode, detail string) verdict {
	return verdict{status: db.AttemptFailed, failure: &agent.Failure{Code: code, Detail: detail}}
}

// malformed is an output that the model is told to correct.
func malformed(detail string, response db.Response, correction string) verdict {
	v := failure(agent.FailureMalformedOutput, detail)
	response.Calls, response.Correction = nil, correction
	v.response = &response
	return v
}

// judge says what an answer amounts to. The calls' tools and arguments are not
// looked at: that is the registry's business.
func judge(def definition.Definition, a answer) verdict {
	if a.crash != "" {
		return failure(agent.FailureInternal, "model_panic")
	}
	if a.err != nil {
		return judgeError(a)
	}
	response := db.Response{Text: storable(a.response.Text)}
	for _, c := range a.response.Calls {
		response.Calls = append(response.Calls, db.ResponseCall{ID: storable(c.ID), Name: storable(c.Name), Arguments: orEmptyObject(storable(c.Arguments))})
	}
	switch a.response.Finish {
	case model.FinishLength:
		return failure(agent.FailureOutputTruncated, "")
	case model.FinishContentFilter:
		return failure(agent.FailureContentPolicy, "")
	case model.FinishStop, model.FinishToolCalls:
	default:
		return malformed("finish", response, "Your last response ended in an unknown way. Answer again.")
	}
	if len(response.Calls) > 0 {
		return judgeCalls(response)
	}
	if err := definition.ValidateFinal(def, response.Text); err != nil {
		detail, correction := "schema", "Your last answer did not satisfy the required schema: "+err.Error()+". Answer again."
		if strings.TrimSpace(response.Text) == "" {
			detail, correction = "empty", "Your last response was empty. Call a tool or give the final answer."
		}
		return malformed(detail, response, correction)
	}
	return verdict{status: db.AttemptSucceeded, final: response.Text, response: &response}
}

func judgeCalls(response db.Response) verdict {
	calls := response.Calls
	if len(calls) > maxCalls {
		return malformed("too_many_calls", response, fmt.Sprintf("Your last response had %d tool calls, at most %d are allowed. Answer again.", len(calls), maxCalls))
	}
	seen := make(map[string]bool, len(calls))
	for i := range calls {
		switch {
		case strings.TrimSpace(calls[i].Name) == "":
			return malformed("call_without_name", response, "Your last response had a tool call without a name. Answer again.")
		case calls[i].ID == "":
			// Some servers give none; call and result are paired by it.
			calls[i].ID = fmt.Sprintf("call_%d", i)
		}
		if seen[calls[i].ID] {
			return malformed("duplicate_call_id", response, "Your last response had two tool calls with the same ID. Answer again.")
		}
		seen[calls[i].ID] = true
	}
	return verdict{status: db.AttemptSucceeded, calls: calls, response: &response}
}

func judgeError(a answer) verdict {
	var failed *model.Error
	if !errors.As(a.err, &failed) {
		return failure(agent.FailureInternal, "model_error")
	}
	var code agent.FailureCode
	switch failed.Kind {
	case model.KindRateLimited:
		code = agent.FailureRateLimited
	case model.KindUnavailable:
		code = agent.FailureUnavailable
	case model.KindTimeout:
		code = agent.FailureTimeout
	case model.KindAuthentication:
		code = agent.FailureAuthentication
	case model.KindInvalidRequest:
		code = agent.FailureInvalidRequest
	case model.KindContextOverflow:
		code = agent.FailureContextOverflow
	case model.KindContentPolicy:
		code = agent.FailureContentPolicy
	case model.KindMalformed:
		return malformed("protocol", db.Response{}, "Your last response could not be read. Answer again.")
	default:
		return failure(agent.FailureInternal, "model_error")
	}
	if (failed.OutputStarted || a.started) && (code == agent.FailureRateLimited || code == agent.FailureUnavailable || code == agent.FailureTimeout) {
		return failure(agent.FailureStreamCut, "")
	}
	v := failure(code, "")
	v.failure.Retryable, v.failure.RetryAfter = failed.Retryable(), failed.RetryAfter
	return v
}

// refusedBeforehand reports whether the provider turned the request away
// without working on it: nothing was consumed, and that is known.
func refusedBeforehand(a answer) bool {
	var failed *model.Error
	if !errors.As(a.err, &failed) || failed.OutputStarted || a.started {
		return false
	}
	switch failed.Kind {
	case model.KindRateLimited, model.KindAuthentication, model.KindInvalidRequest, model.KindContextOverflow:
		return true
	default:
		return false
	}
}

// reported returns the provider's own count if it gave a possible one. No
// request is without input, so zero input is a count that was not made.
func reported(a answer) *db.ReportedTokens {
	usage := a.response.Usage
	var failed *model.Error
	if errors.As(a.err, &failed) {
		usage = failed.Usage
	}
	if usage == nil || usage.InputTokens <= 0 || usage.OutputTokens < 0 {
		return nil
	}
	return &db.ReportedTokens{
		Input: usage.InputTokens, CachedInput: min(max(usage.CachedInputTokens, 0), usage.InputTokens), Output: usage.OutputTokens,
	}
}

// orEmptyObject reads the empty text, with which many servers call a tool that
// takes no arguments, as what it means.
func orEmptyObject(arguments string) string {
	if strings.TrimSpace(arguments) == "" {
		return "{}"
	}
	return arguments
}

// storable makes text that PostgreSQL accepts: valid UTF-8 without NUL.
func storable(s string) string {
	const replacement = "\uFFFD"
	return strings.ReplaceAll(strings.ToValidUTF8(s, replacement), "\x00", replacement)
}
