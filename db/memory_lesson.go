package db

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db/internal/dbsqlc"
)

// InsertLesson queues that the scope's user's run can be learned from. Done again
// it changes nothing.
func (tx *Tx) InsertLesson(runID string) {
	tx.write(exec(tx.q.InsertMemoryLesson, dbsqlc.InsertMemoryLessonParams{Tenant: tx.scope.Tenant, RunID: runID, UserID: tx.scope.User}))
}

// LessonSource reads what a run can be learned from: ErrNotFound if it is not the
// scope's, nothing was to be learned from it, or its user does not take part in
// its group or project any more; ErrErased.
func (db *DB) LessonSource(ctx context.Context, ref agent.RunRef) (LessonSource, error) {
	source, err := db.lessonSource(ctx, ref)
	if err != nil {
		return LessonSource{}, fmt.Errorf("load lesson: %w", err)
	}
	return source, nil
}

func (db *DB) lessonSource(ctx context.Context, ref agent.RunRef) (LessonSource, error) {
	var (
		lesson   dbsqlc.GetMemoryLessonRow
		question dbsqlc.MessageOfMemoryRow
		asked    dbsqlc.GetQuestionRow
		settled  []dbsqlc.LessonFactsRow
		recalled []dbsqlc.MemoryRecord
		limits   []dbsqlc.GetTenantLimitRow

		scope, tenant = ref.Scope, ref.Scope.Tenant
	)
	err := db.inScope(ctx, scope,
		one(db.q.GetMemoryLesson, dbsqlc.GetMemoryLessonParams{Tenant: tenant, RunID: ref.RunID, UserID: scope.User, Environment: scope.Environment}, &lesson),
		one(db.q.GetQuestion, dbsqlc.GetQuestionParams{Tenant: tenant, RunID: ref.RunID}, &asked),
	)
	if err != nil {
		return LessonSource{}, err
	}
	source := LessonSource{Lesson: toLesson(tenant, dbsqlc.DueLessonsRow{
		RunID: lesson.RunID, UserID: lesson.UserID, Environment: lesson.Environment, ConversationID: lesson.ConversationID,
		Generation: lesson.Generation, Agent: lesson.Agent, DefinitionDigest: lesson.DefinitionDigest, GroupID: lesson.GroupID, ProjectID: lesson.ProjectID,
	})}
	source.Lesson.Status, source.Lesson.Tries = lesson.Status, int(lesson.Tries)
	room := source.Lesson.Room
	err = db.readRoom(ctx, room,
		one(db.q.MessageOfMemory, dbsqlc.MessageOfMemoryParams{Tenant: tenant, ID: asked.ID, UserID: scope.User}, &question),
		one(db.q.LessonFacts, dbsqlc.LessonFactsParams{Tenant: tenant, RunID: ref.RunID, UserID: scope.User}, &settled),
		one(db.q.LessonRecalled, dbsqlc.LessonRecalledParams{Tenant: tenant, RunID: ref.RunID, UserID: scope.User, Rooms: rooms(room)}, &recalled),
		one(db.q.GetTenantLimit, tenant, &limits),
	)
	if err != nil {
		return LessonSource{}, err
	}
	subjects := []string{scope.User}
	for _, row := range recalled {
		subjects = append(subjects, row.Subject)
	}
	all, err := db.ringsOf(ctx, tenant, subjects...)
	if err != nil {
		return LessonSource{}, err
	}
	source.Limits = toLimits(limits)
	if source.Question, err = toMessage(all[scope.User], question); err != nil {
		return LessonSource{}, err
	}
	for _, row := range settled {
		fact, err := toSessionEntry(all[scope.User], dbsqlc.SessionFactsRow(row))
		if err != nil {
			return LessonSource{}, err
		}
		source.Facts = append(source.Facts, fact)
	}
	for _, row := range recalled {
		m, err := toMemoryRecord(all[row.Subject], row)
		if err != nil {
			return LessonSource{}, err
		}
		source.Recalled = append(source.Recalled, m)
	}
	return source, nil
}

// CloseLesson records that a lesson is done or, with a failure, has failed; billed
// is what its last try cost, and is added to that of those before. The first outcome stays. ErrNotFound if there is
// no such lesson. What the day is charged is left to the caller.
func (db *DB) CloseLesson(ctx context.Context, ref agent.RunRef, failure string, billed Amount) error {
	var found bool
	err := db.inScope(ctx, ref.Scope, one(db.q.CloseMemoryLesson, dbsqlc.CloseMemoryLessonParams{
		Tenant: ref.Scope.Tenant, RunID: ref.RunID, UserID: ref.Scope.User, Failure: failure,
		BilledTokens: billed.Tokens, BilledCostMicros: billed.CostMicros,
	}, &found))
	if err == nil && !found {
		err = ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("close lesson: %w", err)
	}
	return nil
}

// TryLesson records that a try that cost billed brought nothing. The most-th one
// closes the lesson as failed, with the failure. It reports whether the lesson is
// closed, or not there. What the day is charged is left to the caller.
func (db *DB) TryLesson(ctx context.Context, ref agent.RunRef, most int, failure string, billed Amount) (bool, error) {
	var closed bool
	err := db.inScope(ctx, ref.Scope, one(db.q.TryMemoryLesson, dbsqlc.TryMemoryLessonParams{
		Tenant: ref.Scope.Tenant, RunID: ref.RunID, UserID: ref.Scope.User, Most: int32(most), Failure: failure,
		BilledTokens: billed.Tokens, BilledCostMicros: billed.CostMicros,
	}, &closed))
	if err != nil {
		return false, fmt.Errorf("note a try of a lesson: %w", err)
	}
	return closed, nil
}

func toLesson(tenant string, row dbsqlc.DueLessonsRow) Lesson {
	scope := agent.Scope{Tenant: tenant, User: row.UserID, Environment: row.Environment}
	return Lesson{
		Run: agent.RunRef{Scope: scope, RunID: row.RunID, Generation: row.Generation}, DefinitionDigest: row.DefinitionDigest,
		Room: agent.MemoryRoom{Scope: scope, Conversation: row.ConversationID, Group: row.GroupID, Project: row.ProjectID, Agent: row.Agent},
	}
}

func toMessage(r ring, row dbsqlc.MessageOfMemoryRow) (Message, error) {
	content, err := r.openText(messageContent, row.Content, row.ID, row.ConversationID, row.Role)
	if err != nil {
		return Message{}, err
	}
	return Message{
		ID: row.ID, Conversation: row.ConversationID, Seq: row.Seq, Role: MessageRole(row.Role), Content: content,
		Visibility: Visibility(row.Visibility), RunID: row.RunID, ParentID: present(row.ParentID), CreatedAt: row.CreatedAt,
	}, nil
}
