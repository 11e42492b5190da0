package activities

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/sdk/temporal"
	"go.uber.org/zap"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/session"
	"github.com/fairlead/fairlead/model"
)

// askAgain is when a run that found no free slot should ask again.
const askAgain = time.Second

// detailEnvironment says that the definition does not allow the environment.
const detailEnvironment = "environment"

// maxBeginTries bounds how often BeginRun reads again after a conflict: another
// worker began the same run.
const maxBeginTries = 3

// errErasedUser refuses a run of a user of whom nothing may be kept any more.
var errErasedUser = refuse(agent.ErrorUserErased, "the user was erased, or is being erased: nothing that the user says can be kept any more")

// BeginRun opens a run, or returns how it was opened before. Requests that
// cannot become a run fail with one of the error types of package agent, and
// nothing is stored.
func (r *Runs) BeginRun(ctx context.Context, in agent.BeginRunInput) (out agent.BeginRunOutput, err error) {
	ref := agent.RunRef{Scope: in.Request.Scope(), RunID: in.Request.RunID}
	defer r.contain(agent.ActivityBeginRun, ref, &err)
	if err := in.Request.Validate(); err != nil {
		return out, refuse(agent.ErrorInvalidRequest, err.Error())
	}
	out, err = r.begin(ctx, in)
	for try := 1; errors.Is(err, db.ErrConflict) && try < maxBeginTries; try++ {
		out, err = r.begin(ctx, in)
	}
	if errors.Is(err, db.ErrKeysDestroyed) {
		err = errErasedUser
	}
	return out, r.fault(ctx, agent.ActivityBeginRun, ref, err)
}

// plan is what a new run is opened with.
type plan struct {
	definition definition.Definition
	digest     string
	body       json.RawMessage
	entry      model.Entry
	budget     agent.Budget
	// found is what the message forbids and takes back.
	found session.Findings
}

func (r *Runs) begin(ctx context.Context, in agent.BeginRunInput) (agent.BeginRunOutput, error) {
	req := in.Request
	hash, err := requestHash(req)
	if err != nil {
		return agent.BeginRunOutput{}, err
	}
	// A run that exists needs no definition on this worker, so a failed lookup
	// counts only when the run is new.
	p, planErr := r.plan(req)
	if planErr == nil {
		// Reading a long message takes longer than a transaction should.
		p.found, planErr = r.detect(req, p.definition)
	}

	var (
		run      db.Run
		open     []db.OpenRun
		admitted bool
		isNew    bool
	)
	err = r.store.InTx(ctx, req.Scope(), func(tx Tx) error {
		admitted = false
		state, err := tx.LoadBegin(ctx, db.BeginQuery{
			Conversation: req.Conversation, RunID: req.RunID, Group: req.Group, Project: req.Project, Day: db.Day(r.now()),
		})
		if err != nil {
			return err
		}
		limits := state.Limits.Or(r.limits)
		if isNew = state.Run == nil; !isNew {
			run, open = *state.Run, state.OpenRuns
			if run.RequestHash != tx.KeyedHash(hash) {
				return refuse(agent.ErrorRunConflict, "the run ID was used for another request")
			}
			if run.Status == agent.StatusQueued && !run.Superseded() {
				tx.AdmitRun(run.ID, limits, &admitted)
			}
			return nil
		}
		if planErr != nil {
			return planErr
		}
		if state.Erased {
			// An erasure waits for the runs that are open: no new one holds it up.
			return errErasedUser
		}
		if err := checkConversation(req, state); err != nil {
			return err
		}
		open = state.OpenRuns
		run, err = r.open(tx, in, p, hash, state, limits, &admitted)
		return err
	})
	if err != nil {
		return agent.BeginRunOutput{}, err
	}
	if admitted {
		run.Status = agent.StatusRunning
	}
	def := p.definition
	if !isNew {
		if def, err = r.definition(ctx, run.DefinitionDigest); err != nil {
			return agent.BeginRunOutput{}, err
		}
	}
	out, err := r.begun(run, def)
	for _, o := range open {
		if o.ID != run.ID && o.Generation < run.Generation {
			out.Supersedes = append(out.Supersedes, o.ID)
		}
	}
	r.log.Debug("run begun", zap.String("run_id", run.ID), zap.Int64("generation", run.Generation), zap.String("status", string(run.Status)),
		zap.String("ended", string(out.Ended)), zap.String("detail", out.Detail), zap.Bool("new", isNew), zap.Int("supersedes", len(out.Supersedes)))
	return out, err
}

// plan finds what the request asks for, or says why it cannot become a run.
func (r *Runs) plan(req agent.RunRequest) (plan, error) {
	def, ok := r.definitions.Lookup(req.Agent, req.AgentVersion)
	if !ok {
		return plan{}, refuse(agent.ErrorUnknownAgent, fmt.Sprintf("agent %q %s is not served", req.Agent, orCurrent(req.AgentVersion)))
	}
	entry, _, err := r.models.Resolve(def.Model)
	if err != nil {
		return plan{}, refuse(agent.ErrorInvalidRequest, fmt.Sprintf("agent %q cannot run here: %s", req.Agent, err))
	}
	p := plan{definition: def, digest: definition.Digest(def), entry: entry, budget: req.Budget.Apply(def.AgentBudget())}
	if p.budget.MaxCostMicros > 0 && !entry.Priced() && !def.Budget.AllowUnpriced {
		return plan{}, refuse(agent.ErrorInvalidRequest, fmt.Sprintf(
			"the cost limit cannot be enforced: model %q has no price in the catalogue; add its price, or set budget.allow_unpriced in the definition", def.Model))
	}
	if p.body, err = json.Marshal(def); err != nil {
		return plan{}, fmt.Errorf("encode definition: %w", err)
	}
	return p, nil
}

func checkConversation(req agent.RunRequest, state db.BeginState) error {
	conv := state.Conversation
	if conv.User != req.User || conv.Environment != req.Environment {
		return refuse(agent.ErrorConversationConflict, "the conversation belongs to another user or environment")
	}
	if conv.Group != req.Group || conv.Project != req.Project {
		return refuse(agent.ErrorConversationConflict,
			"the conversation belongs to another group or project: they are the conversation's for good, so name the same ones in each request, or begin another conversation")
	}
	if state.Outsider {
		return refuse(agent.ErrorInvalidRequest, "the user is no participant of the group or project")
	}
	if v := req.ConversationVersion; v != nil && *v != conv.Version {
		return refuse(agent.ErrorConversationConflict, fmt.Sprintf("the conversation is at version %d, not %d", conv.Version, *v))
	}
	return nil
}

// open queues all that opens a new run. A run that may not begin is recorded as
// ended: its message was sent, so it takes part in the conversation.
func (r *Runs) open(tx Tx, in agent.BeginRunInput, p plan, hash string, state db.BeginState, limits db.Limits, admitted *bool) (db.Run, error) {
	req, conv := in.Request, state.Conversation
	question := db.Message{
		ID: messageID(req.Tenant, req.RunID, db.RoleUser), Role: db.RoleUser,
		Content: req.Message, Visibility: db.Visible, RunID: req.RunID,
	}
	tx.StoreDefinition(db.Definition{Digest: p.digest, Name: p.definition.Name, Version: p.definition.Version, Body: p.body})
	entries, err := settled(req, p, question, state.Session)
	if err != nil {
		return db.Run{}, err
	}
	tx.AppendMessage(&conv, question, true)
	tx.AppendSession(conv, req.RunID, entries)
	run := db.Run{
		ID: req.RunID, Scope: req.Scope(), Conversation: req.Conversation, Group: conv.Group, Project: conv.Project, Generation: conv.Generation, CurrentGeneration: conv.Generation,
		Agent: p.definition.Name, DefinitionVersion: p.definition.Version, DefinitionDigest: p.digest, Page: req.Page, Flags: req.Flags,
		Status: agent.StatusQueued, Budget: p.budget, Deadline: deadline(in.StartedAt, p.budget),
		WorkflowID: agent.WorkflowID(req.Tenant, req.RunID), RequestHash: tx.KeyedHash(hash), QuestionID: question.ID, Version: 1,
	}
	tx.InsertRun(run)

	var reason agent.Reason
	var detail string
	if !slices.Contains(p.definition.Environments, req.Environment) {
		reason, detail = agent.ReasonDeclinedByPolicy, detailEnvironment
	} else if limit := limits.Exhausted(state.Used); limit != nil {
		reason, detail = reasonOf(limit), limit.Limit
	}
	if reason == "" {
		tx.AdmitRun(run.ID, limits, admitted)
		return run, nil
	}
	if err := tx.MoveRun(run, db.Move{To: reason.Status(), Reason: reason, Detail: detail}); err != nil {
		return db.Run{}, err
	}
	run.Status, run.Reason, run.Detail = reason.Status(), reason, detail
	return run, nil
}

// deadline has the precision of the database, so that a run that is read again
// has the same one.
func deadline(started time.Time, budget agent.Budget) time.Time {
	return started.Add(budget.Timeout).UTC().Truncate(time.Microsecond)
}

// begun is the output for a run as it stands.
func (r *Runs) begun(run db.Run, def definition.Definition) (agent.BeginRunOutput, error) {
	out := agent.BeginRunOutput{
		Generation: run.Generation, DefinitionDigest: run.DefinitionDigest,
		Deadline: run.Deadline, Budget: run.Budget, Rules: def.Rules(), Route: agent.ModelRoute{Model: def.Model},
	}
	switch {
	case run.Status.Terminal():
		out.Ended, out.Detail = run.Reason, run.Detail
	case run.Status == agent.StatusQueued && run.Superseded():
		out.Ended = agent.ReasonSuperseded
	case run.Status == agent.StatusQueued:
		out.RetryAfter = askAgain
	default:
		out.Admitted = true
		out.Recall = def.Memory.Recall && r.memory != nil
	}
	entry, _, err := r.models.Resolve(def.Model)
	if err != nil {
		if out.Ended != "" {
			return out, nil
		}
		// Another worker may have the model; this run had one when it began.
		return agent.BeginRunOutput{}, fmt.Errorf("%w: the run's model is not configured on this worker", errRetry)
	}
	out.Route.Local = entry.Mode == model.ModeLocal
	return out, nil
}

// requestHash identifies what was asked for.
func requestHash(req agent.RunRequest) (string, error) {
	text, err := json.Marshal(req)
	if err != nil {
		return "", fmt.Errorf("encode request: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// messageNamespace makes the IDs of a run's messages, so that doing the work
// again gives the same ones.
var messageNamespace = uuid.MustParse("6b6bd1ac-6f5c-4c3e-9d0e-0a3d6f6f8f10")

func messageID(tenant, runID string, role db.MessageRole) string {
	return uuid.NewSHA1(messageNamespace, []byte(tenant+"\n"+runID+"\n"+string(role))).String()
}

// answerID is the ID of the message that answers a run.
func answerID(ref agent.RunRef) string {
	return messageID(ref.Scope.Tenant, ref.RunID, db.RoleAssistant)
}

// reasonOf says how a run ends at a daily limit.
func reasonOf(limit *db.LimitError) agent.Reason {
	switch limit.Limit {
	case db.LimitTenantCost, db.LimitUserCost:
		return agent.ReasonCostLimit
	default:
		return agent.ReasonTokenLimit
	}
}

func orCurrent(version string) string {
	if version == "" {
		return "(current version)"
	}
	return "version " + version
}

// refuse makes an error of the request, which no retry can mend.
func refuse(errorType, text string) error {
	return temporal.NewNonRetryableApplicationError(text, errorType, nil)
}
