package activities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/learning"
	"github.com/fairlead/fairlead/internal/recall"
	"github.com/fairlead/fairlead/memorypolicy"
)

// Actions in the audit trail of memory.
const (
	auditStore        = "store"
	auditMerge        = "merge"
	auditReplace      = "replace"
	auditRetract      = "retract"
	auditReject       = "reject"
	auditWaitReview   = "wait_review"
	auditWaitConfirm  = "wait_confirmation"
	auditRefuse       = "refuse_decision"
	auditDecline      = "decline"
	auditExpire       = "expire"
	auditProgram      = "fairlead"
	leastDecideWithin = 24 * time.Hour
	// clockSkew is how far the clocks of workers and database may be apart.
	clockSkew = 5 * time.Minute
)

// Rules beside those of the policy: they need to know of the run.
const (
	ruleRun   = "source.run"
	ruleOlder = "conflict.older"
	ruleTaken = "conflict.taken_back"
)

// agreement is a person's consent to a plan that waits.
type agreement struct {
	person     string
	token      string
	validation agent.MemoryValidation
	// stands says why the candidate, as it is held, cannot be decided about with
	// it; empty if it can.
	stands func(db.MemoryCandidate) agent.RefusalCode
}

// ruling is a judgment in the making.
type ruling struct {
	runs   *Runs
	now    time.Time
	agreed *agreement
	// message is the one that the candidate quotes, and said when that was said, or
	// observed: zero for a candidate that tells no time.
	message string
	said    time.Time
	// said is within the message that ends, as times of statements go, at end.
	end time.Time
	// takenBack is the last retraction of what had the candidate's key and identity.
	takenBack db.Retraction
	// decision is the policy's, without regard to agreed.
	decision memorypolicy.Decision
	index    db.MemoryIndex

	verdict agent.MemoryVerdict
	refused agent.RefusalCode
	action  string
}

// decideMemory has the policy judge a candidate on record and carries that out in
// one transaction. What the policy leaves to a person waits for one; agreed is
// that person's consent, nil without one. A candidate that was decided meanwhile
// stays as it is.
func (r *Runs) decideMemory(ctx context.Context, c db.MemoryCandidate, agreed *agreement) (agent.MemoryVerdict, agent.RefusalCode, error) {
	if c.Content == nil {
		return agent.MemoryVerdict{}, "", errNoCandidate()
	}
	j := &ruling{runs: r, now: r.moment(), agreed: agreed}
	open, err := j.lookUp(ctx, c)
	if err != nil {
		return agent.MemoryVerdict{}, "", err
	}
	if open {
		// How the run ends decides whether anything of it is kept.
		return c.Verdict(), "", nil
	}
	if j.decision.Outcome != memorypolicy.Reject {
		j.decision = r.memoryPolicy.Evaluate(j.question(c))
	}
	if j.decision.Outcome == memorypolicy.Store || agreed != nil && j.decision.Outcome != memorypolicy.Reject {
		j.index = r.indexOf(ctx, c.Key, j.decision)
	}
	err = r.memory.InMemory(ctx, c.Room, c.Scope, func(tx MemoryTx) error { return j.carryOut(ctx, tx, c.ID) })
	if err != nil {
		return agent.MemoryVerdict{}, "", err
	}
	if j.action != "" {
		r.log.Info("memory judged", zap.String("memory_id", c.ID), zap.String("action", j.action), zap.String("state", string(j.verdict.State)),
			zap.String("record_id", j.verdict.Record), zap.Int("version", j.verdict.Version), zap.Strings("rules", ruleIDs(j.verdict.Rules)))
	}
	return j.verdict, j.refused, nil
}

// question is what the policy is asked about a candidate on record.
func (j *ruling) question(c db.MemoryCandidate) memorypolicy.Candidate {
	content := *c.Content
	content.Scope, content.Plan = c.Scope, nil
	return memorypolicy.Candidate{MemoryCandidate: content, Room: c.Room, Message: j.message, Now: j.now}
}

// lookUp reads what the run that a candidate comes from has to do with it: when
// its user asked, and the message that the candidate quotes, as the policy saw it
// when it was proposed: without what the user only passed on. A run that was not
// answered teaches nothing: its candidate is rejected. It reports whether the run
// is still open.
func (j *ruling) lookUp(ctx context.Context, c db.MemoryCandidate) (open bool, err error) {
	if at := c.Content.ObservedAt; at != nil {
		j.said = at.UTC().Truncate(time.Microsecond)
		// Nothing was observed that is still to come. What a run's call settled has the
		// time of the database, whose clock may differ a little.
		if j.said.After(j.now) && (c.RunID == "" || j.said.After(j.now.Add(clockSkew))) {
			j.said = j.now
		}
	}
	if c.RunID == "" {
		return false, nil
	}
	run, question, err := questionOf(ctx, j.runs.store, agent.RunRef{Scope: c.Room.Scope, RunID: c.RunID})
	switch {
	case errors.Is(err, db.ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	case !run.Status.Terminal():
		return true, nil
	case run.Status != agent.StatusSucceeded:
		j.decision = memorypolicy.Decision{Outcome: memorypolicy.Reject, SafeMetadata: true, Rules: []agent.MemoryRule{{
			ID: ruleRun, Text: "the run that it comes from did not end with an answer",
		}}}
		return false, nil
	}
	if j.said.IsZero() {
		j.said = question.CreatedAt
	}
	if c.Content.Quote != "" && question.ID == c.Content.MessageID {
		j.message, _ = learning.Strip(question.Content)
		// Of two statements of one message the later one holds.
		j.end = j.said.Add(time.Duration(len(question.Content)) * time.Microsecond)
		j.said = j.said.Add(time.Duration(max(strings.LastIndex(question.Content, c.Content.Quote), 0)) * time.Microsecond)
	}
	return false, nil
}

// indexOf is what a record will be found by. Without an embedder it is found by
// its words, and reconciliation adds the vector.
func (r *Runs) indexOf(ctx context.Context, key string, d memorypolicy.Decision) db.MemoryIndex {
	if d.Value == nil {
		return db.MemoryIndex{}
	}
	text := memoryText(key, d.Value)
	index := db.MemoryIndex{Tokens: recall.Tokens(text)}
	embedder, vector, err := r.embedQuestion(ctx, text)
	if err == nil && !usable(embedder, vector) {
		err = errEmbedder
	}
	if err != nil {
		// Its text may repeat the value.
		r.log.Warn("a memory is stored without a vector", zap.String("cause_type", fmt.Sprintf("%T", err)))
		return index
	}
	index.Embedder, index.Embedding = embedder, vector
	return index
}

// carryOut is the transaction of a judgment. It may be run again.
func (j *ruling) carryOut(ctx context.Context, tx MemoryTx, id string) error {
	j.refused, j.action = "", ""
	held, err := tx.HoldCandidate(ctx, id)
	if err != nil {
		return err
	}
	switch {
	case j.agreed == nil && held.State != agent.MemoryProposed:
		// Another worker was faster.
		j.verdict = held.Verdict()
		return nil
	case j.agreed != nil:
		if j.refused = j.agreed.stands(held); j.refused != "" {
			j.verdict = held.Verdict()
			return nil
		}
	}
	if held.Content == nil {
		return errNoCandidate()
	}
	samePolicy := held.PolicyDigest == j.runs.memoryPolicy.Digest()
	held.Tries++
	held.UpdatedAt = j.now
	held.PolicyVersion, held.PolicyDigest = j.runs.memoryPolicy.Version(), j.runs.memoryPolicy.Digest()
	if j.decision.Outcome == memorypolicy.Reject {
		j.reject(tx, held, j.decision.Rules)
		return nil
	}
	inForce, err := tx.HoldIdentity(ctx, held.Key, j.decision.Identity)
	if err != nil {
		return err
	}
	j.takenBack = db.Retraction{}
	if !j.said.IsZero() {
		if j.takenBack, err = tx.LastRetraction(ctx, held.Key, j.decision.Identity); err != nil {
			return err
		}
	}
	if j.decision.Value != nil && tx.Hash(j.decision.Value) != j.takenBack.ValueHash && !j.takenBack.At.After(j.end) {
		// The same message takes one value back and states another.
		j.takenBack = db.Retraction{}
	}
	alone := j.resolve(held, inForce, "")
	switch {
	case alone.Outcome == memorypolicy.Reject:
		j.reject(tx, held, alone.Rules)
	case alone.Outcome == memorypolicy.Store && j.agreed == nil:
		j.store(tx, held, alone)
	case j.agreed == nil:
		return j.wait(tx, held, inForce, alone)
	default:
		agreed := j.resolve(held, inForce, j.agreed.validation)
		switch {
		case agreed.Outcome == memorypolicy.Store && samePolicy && samePlan(held.Content.Plan, agreed.plan()):
			j.store(tx, held, agreed)
		case alone.Outcome == memorypolicy.Store:
			// Nobody has to be asked any more, such as about what is in force already.
			j.store(tx, held, alone)
		default:
			return j.wait(tx, held, inForce, alone)
		}
	}
	return nil
}

// resolved is a decision together with what it does to what is in force.
type resolved struct {
	memorypolicy.Resolution
	decision memorypolicy.Decision
	of       []db.MemoryRecord
	// agreed says that a person stands behind it.
	agreed bool
}

// resolve asks what the candidate does to what is in force: by itself, or with a
// person's agreement.
func (j *ruling) resolve(held db.MemoryCandidate, inForce []db.MemoryRecord, by agent.MemoryValidation) resolved {
	s := resolved{decision: j.decision, agreed: by != ""}
	if by != "" {
		s.decision = j.runs.memoryPolicy.Agreed(j.decision, by)
	}
	s.Resolution = j.runs.memoryPolicy.Resolve(j.question(held), s.decision, inForceOf(inForce))
	if s.Outcome != memorypolicy.Reject && j.older(held, s, inForce) {
		s.Outcome, s.Step, s.Of = memorypolicy.Reject, "", nil
		s.Rules = append(s.Rules, agent.MemoryRule{ID: ruleOlder, Text: "what is in force comes from the same kind of source and was said later"})
	}
	if s.Outcome != memorypolicy.Reject && !held.Content.Retracts && s.Step != memorypolicy.Merge && j.moment(s).Before(j.takenBack.At) {
		s.Outcome, s.Step, s.Of = memorypolicy.Reject, "", nil
		s.Rules = append(s.Rules, agent.MemoryRule{ID: ruleTaken, Text: "it was taken back after it was said"})
	}
	for _, r := range inForce {
		if slices.ContainsFunc(s.Of, func(o memorypolicy.InForce) bool { return o.ID == r.ID && o.Version == r.Version }) {
			s.of = append(s.of, r)
		}
	}
	return s
}

// older reports whether a candidate would end what was said after it, as when it
// was learned late. What users confirm, they say now.
func (j *ruling) older(held db.MemoryCandidate, s resolved, inForce []db.MemoryRecord) bool {
	if s.Step != memorypolicy.Replace && s.Step != memorypolicy.Retract {
		return false
	}
	moment := j.moment(s)
	return slices.ContainsFunc(inForce, func(r db.MemoryRecord) bool {
		ends := slices.ContainsFunc(s.Of, func(o memorypolicy.InForce) bool { return o.ID == r.ID && o.Version == r.Version })
		last := r.WrittenAt
		if r.RepeatedAt != nil && r.RepeatedAt.After(last) {
			last = *r.RepeatedAt
		}
		return ends && sameSort(r.SourceType, held.SourceType) && moment.Before(last)
	})
}

// sameSort reports whether the later word of two sources holds.
func sameSort(a, b agent.MemorySourceType) bool {
	trusted := func(s agent.MemorySourceType) bool {
		return s == agent.SourceTrustedTool || s == agent.SourceTrustedService
	}
	return a == b || trusted(a) && trusted(b)
}

// moment is when what is to be kept was said.
func (j *ruling) moment(s resolved) time.Time {
	confirmed := s.decision.Validation == agent.MemoryUserConfirmed || j.agreed != nil && j.agreed.validation == agent.MemoryUserConfirmed
	if j.said.IsZero() || confirmed {
		return j.now
	}
	return j.said
}

// plan is exactly what would be kept.
func (s resolved) plan() *agent.MemoryPlan {
	d := s.decision
	p := &agent.MemoryPlan{
		Value: d.Value, Purpose: d.Purpose, ExpiresAt: d.ExpiresAt, ConsentBasis: d.ConsentBasis, Sensitivity: d.Sensitivity, Step: string(s.Step),
	}
	for _, of := range s.of {
		p.Ends = append(p.Ends, agent.MemoryVersion{Record: of.ID, Version: of.Version})
	}
	return p
}

// samePlan compares what a person agreed to with what would be kept now. That the
// time has moved on, and the end of the retention with it, is no difference.
func samePlan(shown, now *agent.MemoryPlan) bool {
	return shown != nil && string(shown.Value) == string(now.Value) && shown.Purpose == now.Purpose && shown.ConsentBasis == now.ConsentBasis &&
		shown.Sensitivity == now.Sensitivity && (shown.ExpiresAt == nil) == (now.ExpiresAt == nil) && shown.Step == now.Step && slices.Equal(shown.Ends, now.Ends)
}

func (j *ruling) reject(tx MemoryTx, held db.MemoryCandidate, rules []agent.MemoryRule) {
	held.State, held.Rules = agent.MemoryRejected, rules
	j.conclude(tx, held, auditReject)
}

// wait leaves the decision to a person, who is shown exactly what would be kept
// then.
func (j *ruling) wait(tx MemoryTx, held db.MemoryCandidate, inForce []db.MemoryRecord, alone resolved) error {
	action, by := auditWaitReview, agent.MemoryReviewed
	held.State, held.Rules = agent.MemoryWaitingReview, alone.Rules
	if alone.Outcome == memorypolicy.Confirm {
		action, by, held.State = auditWaitConfirm, agent.MemoryUserConfirmed, agent.MemoryWaitingConfirmation
	}
	within := j.decision.DecideWithin
	if within <= 0 {
		within = leastDecideWithin
	}
	until := j.now.Add(within)
	content := *held.Content
	content.Plan = j.resolve(held, inForce, by).plan()
	held.Content, held.ExpiresAt = &content, &until
	held.ValueHash = tx.Hash(hashed(content.Plan.Value))
	held.Revision, held.Nonce = held.Revision+1, approval.Nonce()
	hash, err := approval.MemoryHash(held)
	if err != nil {
		return err
	}
	held.PlanHash = hash
	j.conclude(tx, held, action)
	return nil
}

// hashed is what stands for a value in its hash: a retraction has none.
func hashed(value []byte) []byte {
	if value == nil {
		return []byte("null")
	}
	return value
}

// store carries out what nobody has to be asked about any more.
func (j *ruling) store(tx MemoryTx, held db.MemoryCandidate, s resolved) {
	held.State, held.Rules = agent.MemoryStored, s.Rules
	action := auditStore
	switch s.Step {
	case memorypolicy.Merge:
		action, held.State = auditMerge, agent.MemoryMerged
		for _, r := range s.of {
			tx.RepeatRecord(r, j.moment(s), j.keptUntil(held, s, r))
			held.Record, held.RecordVersion = r.ID, r.Version
		}
	case memorypolicy.Retract:
		action = auditRetract
		for _, r := range s.of {
			// What was said before that, and is learned later, does not come back.
			at := j.moment(s)
			if at.Before(r.WrittenAt) {
				at = r.WrittenAt
			}
			tx.EndRecord(r, db.MemoryRetracted, held.Writer, at)
			held.Record, held.RecordVersion = r.ID, r.Version
		}
	default:
		record := j.record(held, s)
		for i, r := range s.of {
			action = auditReplace
			tx.EndRecord(r, db.MemorySuperseded, held.Writer, j.now)
			if i == 0 {
				record.ID, record.Version = r.ID, r.Version+1
			}
		}
		tx.StoreRecord(record, j.index)
		held.Record, held.RecordVersion = record.ID, record.Version
	}
	j.conclude(tx, held, action)
}

// keptUntil is until when what is said again is kept: as long as if it were new. Whom
// the record comes from and who vouches for it must be the same, and nobody was told
// its end; else it is nil, for as long as before.
func (j *ruling) keptUntil(held db.MemoryCandidate, s resolved, r db.MemoryRecord) *time.Time {
	if s.decision.ExpiresAt == nil || r.DecidedBy != "" || r.User != held.Room.Scope.User || r.Validation != s.decision.Validation {
		return nil
	}
	until := s.decision.ExpiresAt.Add(j.moment(s).Sub(j.now))
	return &until
}

// record is a first version; it is a later one if it takes the place of another.
func (j *ruling) record(held db.MemoryCandidate, s resolved) db.MemoryRecord {
	c, d := held.Content, s.decision
	record := db.MemoryRecord{
		ID: memoryID(held.Room.Scope.Tenant, "record", held.ID), Version: 1,
		Scope: held.Scope, Subject: held.Scope.Subject(held.Room.Scope.User), User: held.Room.Scope.User, Environment: held.Room.Scope.Environment,
		Agent: held.Room.Agent, Kind: held.Kind, Key: held.Key, Identity: d.Identity, Status: db.MemoryActive, Value: d.Value,
		Evidence:   db.MemoryEvidence{MessageID: c.MessageID, Quote: c.Quote, Purpose: d.Purpose},
		SourceType: held.SourceType, SourceID: held.SourceID, Writer: held.Writer, RunID: held.RunID, Conversation: held.Room.Conversation,
		CandidateID: held.ID, Confidence: d.Confidence, Validation: d.Validation, ConsentBasis: d.ConsentBasis, Sensitivity: d.Sensitivity,
		ValidFrom: c.ValidFrom, ValidUntil: c.ValidUntil, ExpiresAt: d.ExpiresAt, WrittenAt: j.moment(s),
		Rules: held.Rules, PolicyVersion: held.PolicyVersion, PolicyDigest: held.PolicyDigest,
	}
	if s.agreed {
		// It is kept for as long as the person was told.
		record.DecidedBy, record.ExpiresAt = j.agreed.person, c.Plan.ExpiresAt
	}
	return record
}

// conclude records what was decided, with who decided.
func (j *ruling) conclude(tx MemoryTx, held db.MemoryCandidate, action string) {
	actor := auditProgram
	if j.agreed != nil {
		actor, held.TokenID = j.agreed.person, j.agreed.token
		if held.State.Final() {
			held.DecidedBy = j.agreed.person
		}
	}
	if held.State.Final() {
		held.Content = nil
	}
	tx.UpdateCandidate(held)
	tx.Audit(auditOf(held, actor, action, strings.Join(ruleIDs(held.Rules), " "), j.now))
	j.verdict, j.action = held.Verdict(), action
}

func auditOf(c db.MemoryCandidate, actor, action, detail string, at time.Time) db.MemoryAudit {
	return db.MemoryAudit{
		At: at, Actor: actor, Action: action, Subject: c.Scope.Subject(c.Room.Scope.User), User: c.Room.Scope.User,
		Candidate: c.ID, Record: c.Record, Version: c.RecordVersion, Detail: detail,
	}
}

func inForceOf(records []db.MemoryRecord) []memorypolicy.InForce {
	list := make([]memorypolicy.InForce, len(records))
	for i, r := range records {
		list[i] = memorypolicy.InForce{
			ID: r.ID, Version: r.Version, Value: r.Value, SourceType: r.SourceType, Validation: r.Validation,
			ValidFrom: r.ValidFrom, ValidUntil: r.ValidUntil, WrittenAt: r.WrittenAt, ExpiresAt: r.ExpiresAt, Promised: r.DecidedBy != "",
		}
	}
	return list
}
