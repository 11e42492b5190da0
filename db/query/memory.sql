-- name: SetMemoryScope :exec
-- What row-level security of memory goes by: the rooms of a run, or a person who
-- asks what is remembered, or the whole tenant.
SELECT set_config('app.tenant', @tenant, true), set_config('app.user', @user_id, true), set_config('app.environment', @environment, true),
       set_config('app.conversation', @conversation_id, true), set_config('app.group', @group_id, true), set_config('app.project', @project_id, true),
       set_config('app.agent', @agent, true), set_config('app.memory_subject', @memory_subject, true), set_config('app.memory', @memory, true);

-- name: AdmitToMemory :exec
-- Fails with FL005 if the user was erased or has no keys any more, and with FL004 unless the user takes
-- part in group and project, and the conversation is not somebody else's nor of a
-- group that the room leaves out or of another project. It comes
-- after ShareSubjectKeys of the user in a statement of its own, which sees the
-- erasure that that waited for.
SELECT CASE
    WHEN EXISTS (SELECT FROM memory_erasure e WHERE e.tenant = @tenant AND e.user_id = @user_id AND e.kind = 'subject') THEN memory_refuse('FL005')
    WHEN EXISTS (SELECT FROM subject_key k WHERE k.tenant = @tenant AND k.subject = @user_id AND k.destroyed_at IS NOT NULL) THEN memory_refuse('FL005')
    WHEN @group_id::text <> '' AND NOT EXISTS (
        SELECT FROM memory_participant p
        WHERE p.tenant = @tenant AND p.kind = 'group' AND p.id = @group_id AND p.user_id = @user_id AND p.removed_at IS NULL) THEN memory_refuse('FL004')
    WHEN @project_id::text <> '' AND NOT EXISTS (
        SELECT FROM memory_participant p
        WHERE p.tenant = @tenant AND p.kind = 'project' AND p.id = @project_id AND p.user_id = @user_id AND p.removed_at IS NULL) THEN memory_refuse('FL004')
    WHEN @conversation_id::text <> '' AND EXISTS (
        SELECT FROM conversation c
        WHERE c.tenant = @tenant AND c.id = @conversation_id
          AND (c.user_id <> @user_id OR c.environment <> @environment OR c.group_id NOT IN ('', @group_id)
               OR (c.project_id <> '' AND @project_id NOT IN ('', c.project_id)))) THEN memory_refuse('FL004')
    WHEN @of_conversation::boolean AND NOT EXISTS (
        SELECT FROM conversation c WHERE c.tenant = @tenant AND c.id = @conversation_id) THEN memory_refuse('FL004')
    ELSE false END;

-- name: InsertMemoryTenant :exec
INSERT INTO memory_tenant (name) VALUES (@tenant) ON CONFLICT (name) DO NOTHING;

-- name: MemoryTenants :many
SELECT name FROM memory_tenant ORDER BY name;

-- name: RefuseForgotten :exec
-- What was observed, or said in a run that began, before its user had all forgotten
-- is not proposed any more, nor what is of the key of a record that was forgotten
-- since: FL007. A tombstone does not say what it held. It comes after the keys are
-- shared, in a statement of its own.
SELECT CASE WHEN EXISTS (
        SELECT FROM memory_erasure e
        WHERE e.tenant = @tenant AND e.user_id = @user_id
          AND coalesce(sqlc.narg('observed_at')::timestamptz,
                       (SELECT r.created_at FROM run r WHERE r.tenant = @tenant AND r.id = @run_id AND r.user_id = @user_id)) <= e.requested_at
          AND (e.kind = 'memory' OR (e.kind = 'record' AND EXISTS (
                SELECT FROM memory_record f
                WHERE f.tenant = e.tenant AND f.id = e.record_id AND f.room = @room AND f.key = @key))))
    AND NOT EXISTS (SELECT FROM memory_candidate c WHERE c.tenant = @tenant AND c.id = @id)
    THEN memory_refuse('FL007') ELSE false END;

-- name: InsertMemoryCandidate :exec
INSERT INTO memory_candidate (tenant, id, room, subject, user_id, environment, conversation_id, group_id, project_id, agent, run_id, kind, key,
                              source_type, source_id, writer, content, request_hash, state, rules, policy_version, policy_digest)
VALUES (@tenant, @id, @room, @subject, @user_id, @environment, @conversation_id, @group_id, @project_id, @agent, @run_id, @kind, @key,
        @source_type, @source_id, @writer, sqlc.narg('content'), @request_hash, @state, @rules, @policy_version, @policy_digest)
ON CONFLICT (tenant, id) DO NOTHING;

-- name: GetMemoryCandidate :one
-- A candidate of one user, to be seen in one of the rooms.
SELECT * FROM memory_candidate
WHERE tenant = @tenant AND id = @id AND user_id = @user_id AND room = ANY (@rooms::text[]);

-- name: HoldMemoryCandidate :one
SELECT * FROM memory_candidate
WHERE tenant = @tenant AND id = @id AND user_id = @user_id AND room = @room
FOR UPDATE;

-- name: UpdateMemoryCandidate :exec
-- In a final state the content goes, and what it could be guessed by. One that is not there any more was decided
-- by somebody else.
WITH updated AS (
    UPDATE memory_candidate
    SET state = @state::text, kind = @kind, key = @key, value_hash = @value_hash, rules = @rules, policy_version = @policy_version,
        policy_digest = @policy_digest, revision = @revision, nonce = CASE WHEN @final::boolean THEN '' ELSE @nonce::text END,
        plan_hash = CASE WHEN @final THEN '' ELSE @plan_hash::text END, expires_at = sqlc.narg('expires_at'),
        record_id = sqlc.narg('record_id'), record_version = sqlc.narg('record_version'), decided_by = @decided_by, token_id = @token_id,
        content = CASE WHEN @final THEN NULL ELSE coalesce(sqlc.narg('content')::bytea, content) END, updated_at = now()
    WHERE tenant = @tenant AND id = @id AND user_id = @user_id AND room = @room
      AND state IN ('proposed', 'waiting_review', 'waiting_confirmation')
    RETURNING id
)
SELECT CASE WHEN EXISTS (SELECT FROM updated) THEN false ELSE memory_refuse('40001') END;

-- name: HoldMemoryIdentity :exec
-- Writers under one key and identity of a room go one after the other.
SELECT pg_advisory_xact_lock(hashtextextended('fairlead.memory:' || @tenant::text || ':' || @room::text || ':' || @identity_hash::text, 0));

-- name: OutliveMemoryIdentity :exec
-- What is in force although its time is over makes room.
WITH outlived AS (
    UPDATE memory_record r
    SET status = 'deleted', value = NULL, evidence = NULL, value_hash = '', identity_hash = '', ended_at = now(), ended_by = 'retention'
    WHERE r.tenant = @tenant AND r.room = @room AND r.key = @key AND r.identity_hash = @identity_hash AND r.status = 'active' AND r.expires_at <= now()
    RETURNING r.tenant, r.id, r.version, r.subject, r.user_id
), keywords AS (
    DELETE FROM memory_keyword k USING outlived o WHERE k.tenant = o.tenant AND k.record_id = o.id
), vectors AS (
    DELETE FROM memory_vector v USING outlived o WHERE v.tenant = o.tenant AND v.record_id = o.id
)
INSERT INTO memory_audit (tenant, actor, action, subject, user_id, record_id, version)
SELECT o.tenant, 'retention', 'expired', o.subject, o.user_id, o.id, o.version FROM outlived o;

-- name: MemoryInForce :many
SELECT * FROM memory_record
WHERE tenant = @tenant AND room = @room AND subject = @subject AND key = @key AND identity_hash = @identity_hash AND status = 'active'
ORDER BY valid_from NULLS FIRST, id;

-- name: LastRetraction :many
-- When what had the key and identity was last taken back, and what it was.
SELECT ended_at, value_hash FROM memory_record
WHERE tenant = @tenant AND room = @room AND key = @key AND identity_hash = @identity_hash AND status = 'retracted'
ORDER BY ended_at DESC
LIMIT 1;

-- name: InsertMemoryRecord :exec
INSERT INTO memory_record (tenant, id, version, room, scope_kind, scope_id, subject, user_id, environment, agent, kind, key, identity_hash, status,
                           value, evidence, value_hash, source_type, source_id, writer, run_id, conversation_id, candidate_id, confidence,
                           validation, consent_basis, sensitivity, valid_from, valid_until, expires_at, written_at, rules, policy_version,
                           policy_digest, decided_by)
VALUES (@tenant, @id, @version, @room, @scope_kind, @scope_id, @subject, @user_id, @environment, @agent, @kind, @key, @identity_hash, 'active',
        @value, @evidence, @value_hash, @source_type, @source_id, @writer, @run_id, @conversation_id, @candidate_id, @confidence,
        @validation, @consent_basis, @sensitivity, sqlc.narg('valid_from'), sqlc.narg('valid_until'), sqlc.narg('expires_at'), @written_at, @rules,
        @policy_version, @policy_digest, @decided_by);

-- name: EndMemoryRecord :exec
WITH ended AS (
    UPDATE memory_record
    SET status = @status, ended_at = @ended_at::timestamptz, ended_by = @ended_by
    WHERE tenant = @tenant AND id = @id AND version = @version AND room = @room AND status = 'active'
    RETURNING version
)
SELECT CASE WHEN EXISTS (SELECT FROM ended) THEN false ELSE memory_refuse('40001') END;

-- name: RepeatMemoryRecord :exec
WITH repeated AS (
    UPDATE memory_record
    SET repeats = repeats + 1, repeated_at = greatest(repeated_at, @repeated_at::timestamptz),
        expires_at = CASE WHEN expires_at IS NULL THEN NULL ELSE greatest(expires_at, sqlc.narg('expires_at')::timestamptz) END
    WHERE tenant = @tenant AND id = @id AND version = @version AND room = @room AND status = 'active'
    RETURNING version
)
SELECT CASE WHEN EXISTS (SELECT FROM repeated) THEN false ELSE memory_refuse('40001') END;

-- name: InsertMemoryKeyword :exec
-- Of a record there is one row, that of the version in force.
INSERT INTO memory_keyword (tenant, record_id, version, room, subject, tokens)
VALUES (@tenant, @record_id, @version, @room, @subject, @tokens)
ON CONFLICT (tenant, record_id) DO UPDATE SET version = excluded.version, tokens = excluded.tokens;

-- name: DeleteMemoryIndex :exec
WITH vectors AS (
    DELETE FROM memory_vector v WHERE v.tenant = @tenant AND v.record_id = @record_id
)
DELETE FROM memory_keyword k WHERE k.tenant = @tenant AND k.record_id = @record_id;

-- name: InsertMemoryAudit :exec
INSERT INTO memory_audit (tenant, at, actor, action, subject, user_id, candidate_id, record_id, version, detail)
VALUES (@tenant, coalesce(sqlc.narg('at')::timestamptz, now()), @actor, @action, @subject, @user_id, @candidate_id, @record_id, @version, @detail);

-- name: InsertMemoryLesson :exec
-- A run of the user that can be learned from, unless the user was erased or has had
-- all forgotten since it began.
WITH lesson AS (
    INSERT INTO memory_lesson (tenant, run_id, user_id, status)
    SELECT r.tenant, r.id, r.user_id, 'due' FROM run r
    WHERE r.tenant = @tenant AND r.id = @run_id AND r.user_id = @user_id
      AND NOT EXISTS (
        SELECT FROM memory_erasure e
        WHERE e.tenant = @tenant AND e.user_id = @user_id AND (e.kind = 'subject' OR (e.kind = 'memory' AND r.created_at <= e.requested_at)))
    ON CONFLICT (tenant, run_id) DO NOTHING
)
INSERT INTO memory_tenant (name) VALUES (@tenant) ON CONFLICT (name) DO NOTHING;

-- name: GetMemoryLesson :one
SELECT l.status, l.tries, r.id AS run_id, r.user_id, r.environment, r.conversation_id, r.generation, r.agent, r.definition_digest,
       c.group_id, c.project_id
FROM memory_lesson l
JOIN run r ON r.tenant = l.tenant AND r.id = l.run_id
JOIN conversation c ON c.tenant = r.tenant AND c.id = r.conversation_id
WHERE l.tenant = @tenant AND l.run_id = @run_id AND r.user_id = @user_id AND r.environment = @environment;

-- name: LessonFacts :many
-- What the calls of a run settled, in the order of the calls.
SELECT e.version, e.kind, e.key, e.value, e.tools, e.ask, e.message_id, e.run_id, e.call_id, e.tool, e.tool_version, e.seq, e.created_at
FROM session_entry e
WHERE e.tenant = @tenant AND e.conversation_id = (SELECT r.conversation_id FROM run r WHERE r.tenant = @tenant AND r.id = @run_id AND r.user_id = @user_id)
  AND e.run_id = @run_id AND e.kind = 'fact' AND e.call_id <> ''
ORDER BY e.place, e.version;

-- name: LessonRecalled :many
-- The versions that a run was given, as far as they are still there for the user.
SELECT r.*
FROM memory_influence i
JOIN memory_record r ON r.tenant = i.tenant AND r.id = i.record_id AND r.version = i.version
WHERE i.tenant = @tenant AND i.run_id = @run_id AND i.user_id = @user_id AND r.status <> 'deleted' AND r.room = ANY (@rooms::text[])
ORDER BY i.rank;

-- name: CloseMemoryLesson :one
-- The first outcome stays. Says whether there is such a lesson. What earlier tries
-- cost is added to; a cost that is not known of one is not known of all.
WITH closed AS (
    UPDATE memory_lesson l
    SET status = CASE WHEN @failure::text = '' THEN 'done' ELSE 'failed' END, failure = @failure, updated_at = now(),
        billed_cost_micros = CASE WHEN l.billed_tokens = 0 THEN sqlc.narg('billed_cost_micros')::bigint
                                  ELSE l.billed_cost_micros + sqlc.narg('billed_cost_micros')::bigint END,
        billed_tokens = l.billed_tokens + @billed_tokens::bigint
    WHERE l.tenant = @tenant AND l.run_id = @run_id AND l.user_id = @user_id AND l.status = 'due'
)
SELECT EXISTS (
    SELECT FROM memory_lesson l WHERE l.tenant = @tenant AND l.run_id = @run_id AND l.user_id = @user_id
)::boolean AS found;

-- name: TryMemoryLesson :one
-- A try that was paid for and brought nothing. The last one closes the lesson.
-- Says whether it is due no more.
WITH tried AS (
    UPDATE memory_lesson l
    SET tries = l.tries + 1, updated_at = now(),
        status = CASE WHEN l.tries + 1 >= @most::integer THEN 'failed' ELSE l.status END,
        failure = CASE WHEN l.tries + 1 >= @most::integer THEN @failure::text ELSE l.failure END,
        billed_cost_micros = CASE WHEN l.billed_tokens = 0 THEN sqlc.narg('billed_cost_micros')::bigint
                                  ELSE l.billed_cost_micros + sqlc.narg('billed_cost_micros')::bigint END,
        billed_tokens = l.billed_tokens + @billed_tokens::bigint
    WHERE l.tenant = @tenant AND l.run_id = @run_id AND l.user_id = @user_id AND l.status = 'due'
    RETURNING l.status
)
SELECT coalesce((SELECT t.status <> 'due' FROM tried t), true)::boolean AS closed;
