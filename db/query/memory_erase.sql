-- name: InsertErasure :exec
INSERT INTO memory_erasure (tenant, id, kind, user_id, record_id, requested_by)
VALUES (@tenant, @id, @kind, @user_id, @record_id, @requested_by)
ON CONFLICT (tenant, id) DO NOTHING;

-- name: HoldErasure :one
SELECT * FROM memory_erasure WHERE tenant = @tenant AND id = @id FOR NO KEY UPDATE;

-- name: UpdateErasure :exec
UPDATE memory_erasure
SET receipt = @receipt, completed_at = CASE WHEN @completed::boolean THEN coalesce(completed_at, now()) ELSE completed_at END
WHERE tenant = @tenant AND id = @id;

-- name: ListErasures :many
SELECT * FROM memory_erasure
WHERE tenant = @tenant AND user_id = @user_id
ORDER BY requested_at, id;

-- name: OpenErasures :many
-- Erasures of users that are not completed: whose workflow has ended goes on with
-- another.
SELECT id, user_id, requested_by FROM memory_erasure
WHERE tenant = @tenant AND kind = 'subject' AND completed_at IS NULL AND requested_at <= @stale_since::timestamptz
ORDER BY requested_at, id
LIMIT @max_rows;

-- name: OwnsRecord :one
-- Whether a version of a record belongs to the user or comes from the user.
SELECT EXISTS (
    SELECT FROM memory_record WHERE tenant = @tenant AND id = @id AND (subject = @user_id OR user_id = @user_id)
)::boolean AS found;

-- name: BuryRecord :one
-- Tombstones for the versions of one record that belong to the user or come from
-- the user.
WITH buried AS (
    UPDATE memory_record
    SET status = 'deleted', value = NULL, evidence = NULL, value_hash = '', identity_hash = '', ended_at = now(), ended_by = @ended_by
    WHERE tenant = @tenant AND id = @id AND (subject = @user_id OR user_id = @user_id) AND status <> 'deleted'
    RETURNING id
)
SELECT count(DISTINCT b.id) AS records, count(*) AS versions FROM buried b;

-- name: BuryMemory :one
-- Tombstones for all that belongs to the user or comes from the user.
WITH buried AS (
    UPDATE memory_record
    SET status = 'deleted', value = NULL, evidence = NULL, value_hash = '', identity_hash = '', ended_at = now(), ended_by = @ended_by
    WHERE tenant = @tenant AND (subject = @user_id OR user_id = @user_id) AND status <> 'deleted'
    RETURNING id
)
SELECT count(DISTINCT b.id) AS records, count(*) AS versions FROM buried b;

-- name: ClearCandidatesOfRecord :one
-- Those that a record was made from, or that were merged with it, and those that
-- are not decided and may say the same again: what they say is sealed, so all of
-- the room and key of the record.
WITH cleared AS (
    UPDATE memory_candidate c
    SET content = NULL, value_hash = '', nonce = '', plan_hash = '', updated_at = now(),
        state = CASE WHEN c.state IN ('proposed', 'waiting_review', 'waiting_confirmation') THEN 'declined' ELSE c.state END,
        decided_by = CASE WHEN c.state IN ('proposed', 'waiting_review', 'waiting_confirmation') THEN @decided_by ELSE c.decided_by END
    WHERE c.tenant = @tenant AND (c.subject = @user_id OR c.user_id = @user_id) AND (c.content IS NOT NULL OR c.value_hash <> '')
      AND (c.record_id = @record_id::text OR c.id = ANY (ARRAY(SELECT r.candidate_id FROM memory_record r WHERE r.tenant = @tenant AND r.id = @record_id))
           OR (c.state IN ('proposed', 'waiting_review', 'waiting_confirmation')
               AND (c.room, c.key) IN (SELECT r.room, r.key FROM memory_record r WHERE r.tenant = @tenant AND r.id = @record_id)))
    RETURNING c.id
)
SELECT count(*) FROM cleared;

-- name: ClearCandidates :one
-- All of a user's. Of one who is erased nothing stays by which a value could be
-- guessed.
WITH cleared AS (
    UPDATE memory_candidate
    SET content = NULL, value_hash = '', nonce = '', plan_hash = '', updated_at = now(),
        request_hash = CASE WHEN @erased::boolean THEN '' ELSE request_hash END,
        state = CASE WHEN state IN ('proposed', 'waiting_review', 'waiting_confirmation') THEN 'declined' ELSE state END,
        decided_by = CASE WHEN state IN ('proposed', 'waiting_review', 'waiting_confirmation') THEN @decided_by ELSE decided_by END
    WHERE tenant = @tenant AND (subject = @user_id OR user_id = @user_id)
      AND (content IS NOT NULL OR value_hash <> '' OR (@erased AND request_hash <> '')
           OR state IN ('proposed', 'waiting_review', 'waiting_confirmation'))
    RETURNING id
)
SELECT count(*) FROM cleared;

-- name: PurgeKeywords :one
-- The words of versions of a user's that were deleted, of one record or of all.
WITH gone AS (
    DELETE FROM memory_keyword k
    WHERE k.tenant = @tenant AND k.record_id = ANY (ARRAY(
        SELECT x.record_id
        FROM memory_record r
        JOIN memory_keyword x ON x.tenant = r.tenant AND x.record_id = r.id AND x.version = r.version
        WHERE r.tenant = @tenant AND (r.subject = @user_id OR r.user_id = @user_id) AND r.status = 'deleted'
          AND (@record_id::text = '' OR r.id = @record_id)
        LIMIT @max_rows))
    RETURNING k.record_id
)
SELECT count(*) FROM gone;

-- name: PurgeVectors :one
WITH gone AS (
    DELETE FROM memory_vector v
    WHERE v.tenant = @tenant AND v.record_id = ANY (ARRAY(
        SELECT x.record_id
        FROM memory_record r
        JOIN memory_vector x ON x.tenant = r.tenant AND x.record_id = r.id AND x.version = r.version
        WHERE r.tenant = @tenant AND (r.subject = @user_id OR r.user_id = @user_id) AND r.status = 'deleted'
          AND (@record_id::text = '' OR r.id = @record_id)
        LIMIT @max_rows))
    RETURNING v.record_id
)
SELECT count(*) FROM gone;

-- name: LeaveLessons :exec
-- Nothing is learned from the runs of a user who was erased, or who has what was
-- said in them forgotten.
UPDATE memory_lesson
SET status = 'failed', failure = @failure, updated_at = now()
WHERE tenant = @tenant AND user_id = @user_id AND status = 'due';

-- name: LeaveScopes :exec
-- A user who was erased takes part in nothing.
UPDATE memory_participant
SET removed_by = @removed_by, removed_at = now()
WHERE tenant = @tenant AND user_id = @user_id AND removed_at IS NULL;

-- name: OutliveMemory :one
-- Versions whose time is over become tombstones, and the words and vectors of
-- those that were in force go.
WITH due AS (
    SELECT r.tenant, r.id, r.version, r.status
    FROM memory_record r
    WHERE r.tenant = @tenant AND r.status <> 'deleted' AND r.expires_at <= @now::timestamptz
    ORDER BY r.expires_at
    LIMIT @max_rows
    FOR UPDATE SKIP LOCKED
), outlived AS (
    UPDATE memory_record r
    SET status = 'deleted', value = NULL, evidence = NULL, value_hash = '', identity_hash = '',
        ended_at = coalesce(r.ended_at, @now), ended_by = CASE WHEN r.status = 'active' THEN 'retention' ELSE r.ended_by END
    FROM due
    WHERE r.tenant = due.tenant AND r.id = due.id AND r.version = due.version
    RETURNING r.tenant, r.id, r.version, r.subject, r.user_id, due.status AS before
), keywords AS (
    DELETE FROM memory_keyword k USING outlived o WHERE o.before = 'active' AND k.tenant = o.tenant AND k.record_id = o.id
), vectors AS (
    DELETE FROM memory_vector v USING outlived o WHERE o.before = 'active' AND v.tenant = o.tenant AND v.record_id = o.id
), noted AS (
    INSERT INTO memory_audit (tenant, actor, action, subject, user_id, record_id, version)
    SELECT o.tenant, 'retention', 'expired', o.subject, o.user_id, o.id, o.version FROM outlived o
)
SELECT count(*) AS versions, count(*) FILTER (WHERE o.before = 'active') AS records FROM outlived o;

-- name: SweepKeywords :one
-- Words without a version in force that they are of.
WITH gone AS (
    DELETE FROM memory_keyword k
    WHERE k.tenant = @tenant AND k.record_id = ANY (ARRAY(
        SELECT x.record_id FROM memory_keyword x
        WHERE x.tenant = @tenant AND NOT EXISTS (
            SELECT FROM memory_record r
            WHERE r.tenant = x.tenant AND r.id = x.record_id AND r.version = x.version AND r.status = 'active' AND r.room = x.room)
        LIMIT @max_rows))
    RETURNING k.record_id
)
SELECT count(*) FROM gone;

-- name: SweepWords :one
-- Entries of the index by word that no words stand behind.
WITH gone AS (
    DELETE FROM memory_word w
    WHERE w.ctid = ANY (ARRAY(
        SELECT x.ctid FROM memory_word x
        WHERE x.tenant = @tenant AND NOT EXISTS (
            SELECT FROM memory_keyword k
            WHERE k.doc = x.doc AND k.tenant = x.tenant AND k.room = x.room AND x.token = ANY (k.tokens))
        LIMIT @max_rows))
    RETURNING w.doc
)
SELECT count(*) FROM gone;

-- name: SweepVectors :one
WITH gone AS (
    DELETE FROM memory_vector v
    WHERE v.ctid = ANY (ARRAY(
        SELECT x.ctid FROM memory_vector x
        WHERE x.tenant = @tenant AND NOT EXISTS (
            SELECT FROM memory_record r
            WHERE r.tenant = x.tenant AND r.id = x.record_id AND r.version = x.version AND r.status = 'active' AND r.room = x.room)
        LIMIT @max_rows))
    RETURNING v.record_id
)
SELECT count(*) FROM gone;

-- name: SweepRecords :one
-- Content that somebody asked to forget or erase and that is there all the same,
-- such as after a backup was restored. A minute is left to the clocks of workers.
-- Requests of one record are joined by its ID, the others once for each user: who
-- forgot a thousand records is not searched a thousand times.
WITH due AS (
    SELECT r.tenant, r.id, r.version
    FROM memory_erasure e
    JOIN memory_record r ON r.tenant = e.tenant AND r.id = e.record_id AND (r.subject = e.user_id OR r.user_id = e.user_id)
    WHERE e.tenant = @tenant AND r.tenant = @tenant AND e.kind = 'record' AND r.status <> 'deleted'
      AND r.written_at < e.requested_at - interval '1 minute'
    UNION
    SELECT r.tenant, r.id, r.version
    FROM (
        SELECT q.user_id, max(q.requested_at) AS last, bool_or(q.kind = 'subject') AS erased
        FROM memory_erasure q
        WHERE q.tenant = @tenant AND q.kind <> 'record'
        GROUP BY q.user_id) e
    JOIN memory_record r ON r.subject = e.user_id OR r.user_id = e.user_id
    WHERE r.tenant = @tenant AND r.status <> 'deleted' AND (e.erased OR r.written_at < e.last - interval '1 minute')
    UNION
    SELECT r.tenant, r.id, r.version
    FROM memory_record d
    JOIN memory_record r ON r.tenant = d.tenant AND r.id = d.id AND r.version < d.version AND r.user_id = d.user_id
    WHERE d.tenant = @tenant AND r.tenant = @tenant AND d.status = 'deleted' AND r.status <> 'deleted'
    LIMIT @max_rows
), swept AS (
    UPDATE memory_record r
    SET status = 'deleted', value = NULL, evidence = NULL, value_hash = '', identity_hash = '', ended_at = now(), ended_by = 'reconciliation'
    FROM due
    WHERE r.tenant = due.tenant AND r.id = due.id AND r.version = due.version AND r.status <> 'deleted'
    RETURNING r.tenant, r.id, r.version, r.subject, r.user_id
), noted AS (
    INSERT INTO memory_audit (tenant, actor, action, subject, user_id, record_id, version)
    SELECT s.tenant, 'reconciliation', 'residue', s.subject, s.user_id, s.id, s.version FROM swept s
)
SELECT count(*) FROM swept;

-- name: SweepCandidates :one
-- Proposals of users who were erased.
WITH cleared AS (
    UPDATE memory_candidate c
    SET content = NULL, value_hash = '', request_hash = '', nonce = '', plan_hash = '', updated_at = now(),
        state = CASE WHEN c.state IN ('proposed', 'waiting_review', 'waiting_confirmation') THEN 'declined' ELSE c.state END,
        decided_by = CASE WHEN c.state IN ('proposed', 'waiting_review', 'waiting_confirmation') THEN 'reconciliation' ELSE c.decided_by END
    WHERE c.tenant = @tenant AND c.id = ANY (ARRAY(
        SELECT x.id
        FROM memory_erasure e
        JOIN memory_candidate x ON x.tenant = e.tenant AND (x.subject = e.user_id OR x.user_id = e.user_id)
        WHERE e.tenant = @tenant AND x.tenant = @tenant AND e.kind = 'subject'
          AND (x.content IS NOT NULL OR x.value_hash <> '' OR x.request_hash <> '' OR x.state IN ('proposed', 'waiting_review', 'waiting_confirmation'))
        LIMIT @max_rows))
    RETURNING c.id
)
SELECT count(*) FROM cleared;

-- name: ExpireCandidates :one
-- Those that nobody decided about in time, and that no workflow waits with any
-- more: it would have noticed by stale_since. What was only ever proposed is given
-- up after a month, or after as many tries as DueCandidates makes.
WITH expired AS (
    UPDATE memory_candidate c
    SET state = 'expired', content = NULL, nonce = '', plan_hash = '', updated_at = now(), decided_by = 'reconciliation'
    WHERE c.tenant = @tenant AND c.id = ANY (ARRAY(
        SELECT x.id FROM memory_candidate x
        WHERE x.tenant = @tenant AND x.state IN ('proposed', 'waiting_review', 'waiting_confirmation')
          AND CASE x.state
                WHEN 'proposed' THEN x.created_at < @given_up::timestamptz OR (x.tries >= 8 AND x.updated_at <= @stale_since::timestamptz
                    AND NOT coalesce((SELECT n.status IN ('queued', 'running', 'waiting_confirmation') FROM run n WHERE n.tenant = @tenant AND n.id = x.run_id), false))
                ELSE x.expires_at <= @stale_since END
        LIMIT @max_rows
        FOR UPDATE SKIP LOCKED))
    RETURNING c.tenant, c.id, c.subject, c.user_id
), noted AS (
    INSERT INTO memory_audit (tenant, actor, action, subject, user_id, candidate_id)
    SELECT e.tenant, 'reconciliation', 'expired', e.subject, e.user_id, e.id FROM expired e
)
SELECT count(*) FROM expired;

-- name: DueCandidates :many
-- Proposals that nobody decided about, and once a day those that wait for a person:
-- their workflow may be gone. Each is noted as tried once more, 8 times at most and
-- each time later, some six days in all.
UPDATE memory_candidate c
SET tries = c.tries + 1, updated_at = now()
WHERE c.tenant = @tenant AND c.id = ANY (ARRAY(
    SELECT x.id FROM memory_candidate x
    WHERE x.tenant = @tenant AND x.state IN ('proposed', 'waiting_review', 'waiting_confirmation') AND x.tries < 8
      AND x.updated_at <= @stale_since::timestamptz AND x.updated_at + x.tries * x.tries * interval '1 hour' <= @stale_since
      AND (x.state = 'proposed' OR (x.expires_at > now() AND x.updated_at + interval '1 day' <= @stale_since))
      -- How an open run ends decides about what it has proposed.
      AND NOT coalesce((SELECT n.status IN ('queued', 'running', 'waiting_confirmation') FROM run n WHERE n.tenant = @tenant AND n.id = x.run_id), false)
    ORDER BY x.updated_at
    LIMIT @max_rows
    FOR UPDATE SKIP LOCKED))
RETURNING c.id, c.user_id, c.environment, c.conversation_id, c.group_id, c.project_id, c.agent;

-- name: DueLessons :many
-- Run and conversation are looked up one after the other, whatever the plan was
-- made on.
WITH due AS (
    UPDATE memory_lesson l
    SET updated_at = now()
    WHERE l.tenant = @tenant AND l.run_id = ANY (ARRAY(
        SELECT x.run_id FROM memory_lesson x
        WHERE x.tenant = @tenant AND x.status = 'due' AND x.updated_at <= @stale_since::timestamptz
        ORDER BY x.updated_at
        LIMIT @max_rows
        FOR UPDATE SKIP LOCKED))
    RETURNING l.tenant, l.run_id
)
SELECT r.id AS run_id, r.user_id, r.environment, r.conversation_id, r.generation, r.agent, r.definition_digest, c.group_id, c.project_id
FROM due
CROSS JOIN LATERAL (
    SELECT n.id, n.user_id, n.environment, n.conversation_id, n.generation, n.agent, n.definition_digest
    FROM run n WHERE n.tenant = @tenant AND n.id = due.run_id
    OFFSET 0) r
CROSS JOIN LATERAL (
    SELECT n.group_id, n.project_id FROM conversation n WHERE n.tenant = @tenant AND n.id = r.conversation_id
    OFFSET 0) c
ORDER BY r.id;

-- name: GiveUpLessons :one
-- What could not be learned within a month is left.
WITH left_alone AS (
    UPDATE memory_lesson l
    SET status = 'failed', failure = 'too_late', updated_at = now()
    WHERE l.tenant = @tenant AND l.run_id = ANY (ARRAY(
        SELECT x.run_id FROM memory_lesson x
        WHERE x.tenant = @tenant AND x.status = 'due' AND x.created_at < @given_up::timestamptz
        LIMIT @max_rows
        FOR UPDATE SKIP LOCKED))
    RETURNING l.run_id
)
SELECT count(*) FROM left_alone;
