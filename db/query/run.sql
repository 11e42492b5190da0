-- name: GetRun :one
SELECT sqlc.embed(r), c.generation AS current_generation, c.group_id, c.project_id
FROM run r
JOIN conversation c ON c.tenant = r.tenant AND c.id = r.conversation_id
WHERE r.tenant = @tenant AND r.id = @id;

-- name: ShareRun :one
-- GetRun that keeps the run from ending before the transaction does.
SELECT sqlc.embed(r), c.generation AS current_generation, c.group_id, c.project_id
FROM run r
JOIN conversation c ON c.tenant = r.tenant AND c.id = r.conversation_id
WHERE r.tenant = @tenant AND r.id = @id
FOR SHARE OF r;

-- name: LockRun :one
-- Holds the run's row against every other change of its status.
SELECT sqlc.embed(r), c.generation AS current_generation, c.group_id, c.project_id
FROM run r
JOIN conversation c ON c.tenant = r.tenant AND c.id = r.conversation_id
WHERE r.tenant = @tenant AND r.id = @id
FOR NO KEY UPDATE OF r;

-- name: LockRunAndConversation :one
-- Holds the run's row and its conversation's, conversation first as BeginRun
-- takes it, so that the generation cannot move on.
WITH held AS (
    SELECT c.tenant, c.id, c.version, c.generation, c.last_seq, c.branch
    FROM conversation c
    WHERE c.tenant = @tenant AND c.id = @conversation_id
    FOR NO KEY UPDATE
)
SELECT held.version, held.generation AS current_generation, held.last_seq, held.branch, r.status, r.user_id, r.environment
FROM held
JOIN run r ON r.tenant = held.tenant AND r.conversation_id = held.id
WHERE r.id = @id
FOR SHARE OF r;

-- name: OpenRuns :many
-- The runs of a conversation that have not ended, oldest first.
SELECT id, generation
FROM run
WHERE tenant = @tenant AND conversation_id = @conversation_id AND status IN ('queued', 'running', 'waiting_confirmation')
ORDER BY generation;

-- name: InsertRun :exec
WITH opened AS (
    INSERT INTO run (tenant, id, user_id, environment, conversation_id, generation, agent, definition_version, definition_digest,
                     page, flags, status, max_steps, max_tool_calls, max_tokens, max_cost_micros, timeout_ns, deadline,
                     workflow_id, request_hash, question_message_id)
    VALUES (@tenant, @id, @user_id, @environment, @conversation_id, @generation, @agent, @definition_version, @definition_digest,
            @page, @flags, 'queued', @max_steps, @max_tool_calls, @max_tokens, @max_cost_micros, @timeout_ns, @deadline,
            @workflow_id, @request_hash, @question_message_id)
    RETURNING tenant, id, version
)
INSERT INTO run_transition (tenant, run_id, seq, to_status)
SELECT tenant, id, version, 'queued' FROM opened;

-- name: LockAdmission :exec
-- Admissions of a tenant happen one after the other, on all workers.
SELECT pg_advisory_xact_lock(hashtextextended('fairlead.admission:' || @tenant::text, 0));

-- name: AdmitRun :one
-- Moves a queued run to running if tenant and user have a free slot; says
-- whether it did. A run that outlived its deadline by the grace holds no slot:
-- its workflow was terminated from outside. Nor does one that waits for a
-- person: it uses nothing, and when it goes on it is not held up, so that the
-- limit can be passed by what people confirm at the same time.
WITH active AS (
    SELECT count(*) AS of_tenant, count(*) FILTER (WHERE a.user_id = @user_id) AS of_user
    FROM run a
    WHERE a.tenant = @tenant AND a.status = 'running'
      AND a.deadline > now() - make_interval(secs => @grace_seconds::float8)
), admitted AS (
    UPDATE run
    SET status = 'running', started_at = now(), version = run.version + 1
    FROM active
    WHERE run.tenant = @tenant AND run.id = @id AND run.status = 'queued'
      AND active.of_tenant < @max_running::bigint AND active.of_user < @max_running_per_user::bigint
    RETURNING run.tenant, run.id, run.version
), moved AS (
    INSERT INTO run_transition (tenant, run_id, seq, from_status, to_status)
    SELECT tenant, id, version, 'queued', 'running' FROM admitted
    RETURNING seq
)
SELECT EXISTS (SELECT 1 FROM moved)::boolean AS admitted;

-- name: MoveRun :exec
-- The transition is inserted whether or not the update found the old status
-- and version: of two moves from one version the second fails on its key.
WITH moved AS (
    UPDATE run
    SET status = @to_status, reason = sqlc.narg('reason'), detail = @detail, step = @step, tool_calls = @tool_calls,
        answer_message_id = sqlc.narg('answer_message_id'), version = version + 1,
        deadline = @deadline, waiting_since = sqlc.narg('waiting_since'), memory = sqlc.narg('memory'),
        ended_at = CASE WHEN @terminal::boolean THEN now() END
    WHERE run.tenant = @tenant AND run.id = @id AND run.status = @from_status::text AND run.version = @version
)
INSERT INTO run_transition (tenant, run_id, seq, from_status, to_status, reason)
VALUES (@tenant, @id, @next_version, @from_status::text, @to_status, sqlc.narg('reason'));
