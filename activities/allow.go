package activities

import (
	"encoding/json"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/authz"
	"github.com/fairlead/fairlead/tool"
)

// question is what the policies are asked about one tool of a run, by its user.
func question(action authz.Action, run db.Run, name string, risk tool.Risk) authz.Question {
	return authz.Question{
		Action: action, Tenant: run.Scope.Tenant, Environment: run.Scope.Environment, Agent: run.Agent,
		Page: run.Page, Flags: run.Flags, User: run.Scope.User, Requester: run.Scope.User, Tool: name, Risk: string(risk),
	}
}

// about is question for a recorded call, with what is known of its object.
func about(action authz.Action, run db.Run, call db.ToolCall, object string) authz.Question {
	q := question(action, run, call.Tool, tool.Risk(call.Risk))
	q.Arguments, q.Object = json.RawMessage(call.Arguments), object
	return q
}

// decide asks the policies and translates their answer into that of a tool: nil,
// an *Error that the model may see, or tool.ErrAuthorizationUnavailable.
func (r *Runs) decide(q authz.Question, runID string) error {
	err := r.policies.Decide(q)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, authz.ErrForbidden):
		return &tool.Error{Code: agent.ToolForbidden, Message: "not allowed", Err: tool.ErrForbidden}
	}
	r.log.Error("policies could not be evaluated", zap.String("run_id", runID), zap.String("action", string(q.Action)), zap.String("cause", err.Error()))
	return fmt.Errorf("%w: %w", tool.ErrAuthorizationUnavailable, err)
}

// offered narrows a definition's tools to those that the policies let the model
// see. It is no authorization to use them.
func (r *Runs) offered(run db.Run, def definition.Definition) ([]string, error) {
	allow := make([]string, 0, len(def.Tools))
	for _, name := range def.Tools {
		spec, known := r.tools.Spec(name)
		if !known {
			continue
		}
		err := r.decide(question(authz.Offer, run, name, spec.Risk), run.ID)
		if errors.Is(err, tool.ErrAuthorizationUnavailable) {
			return nil, err
		}
		if err == nil {
			allow = append(allow, name)
		}
	}
	return allow, nil
}
