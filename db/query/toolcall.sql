-- name: InsertToolCall :exec
INSERT INTO tool_call (tenant, run_id, call_id, step, idx, provider_call_id, tool, tool_version, risk, arguments, arguments_hash,
                       status, error_code, error_hash, envelope, ended_at)
VALUES (@tenant, @run_id, @call_id, @step, @idx, @provider_call_id, @tool, @tool_version, @risk, @arguments, @arguments_hash,
        @status, @error_code, @error_hash, sqlc.narg('envelope'), sqlc.narg('ended_at'));

-- name: GetToolCall :one
SELECT call_id, step, idx, tool, tool_version, risk, arguments, arguments_hash, status, error_code, error_hash, result_hash, executions
FROM tool_call
WHERE tenant = @tenant AND run_id = @run_id AND call_id = @call_id;

-- name: StartToolCall :exec
UPDATE tool_call
SET status = 'running', executions = executions + 1, started_at = now()
WHERE tenant = @tenant AND run_id = @run_id AND call_id = @call_id AND status IN ('proposed', 'running');

-- name: FinishToolCall :one
-- Records the outcome of a call that has none yet; says whether it did. Its
-- facts are stored with it, unless a newer generation has begun.
WITH finished AS (
    UPDATE tool_call
    SET status = @status, error_code = @error_code, error_hash = @error_hash, envelope = sqlc.narg('envelope'), note = sqlc.narg('note'),
        result_hash = @result_hash, executions = GREATEST(executions, 1), started_at = coalesce(started_at, @started_at::timestamptz), ended_at = now()
    WHERE tool_call.tenant = @tenant AND tool_call.run_id = @run_id AND tool_call.call_id = @call_id
      AND tool_call.status IN ('proposed', 'running', 'unknown')
    RETURNING tool_call.tenant, tool_call.run_id, tool_call.call_id, tool_call.tool, tool_call.tool_version
), stored AS (
    INSERT INTO tool_result (tenant, run_id, call_id, content, content_type, hash)
    SELECT f.tenant, f.run_id, f.call_id, @content::bytea, @content_type, @result_hash FROM finished f
    WHERE @status = 'succeeded'
), settled AS (
    UPDATE conversation
    SET entries = conversation.entries + cardinality(@fact_keys::text[])
    FROM finished f
    JOIN run r ON r.tenant = f.tenant AND r.id = f.run_id
    WHERE @status = 'succeeded' AND cardinality(@fact_keys::text[]) > 0
      AND conversation.tenant = r.tenant AND conversation.id = r.conversation_id AND conversation.generation = r.generation
    RETURNING conversation.tenant, conversation.id, conversation.entries - cardinality(@fact_keys::text[]) AS entries, conversation.branch,
              conversation.last_seq, f.run_id, f.call_id, f.tool, f.tool_version
), facts AS (
    INSERT INTO session_entry (tenant, conversation_id, version, kind, key, value, run_id, call_id, tool, tool_version, branch, seq)
    SELECT s.tenant, s.id, s.entries + n, 'fact', (@fact_keys::text[])[n], (@fact_values::bytea[])[n], s.run_id, s.call_id, s.tool,
           s.tool_version, s.branch, s.last_seq
    FROM settled s
    CROSS JOIN generate_series(1, cardinality(@fact_keys::text[])) AS n
    ON CONFLICT ON CONSTRAINT session_entry_source_key DO NOTHING
)
SELECT EXISTS (SELECT 1 FROM finished)::boolean AS recorded;

-- name: AbandonToolCalls :exec
-- A call whose effect may have happened is not abandoned but unknown, and one
-- that an operator settled is what the operator said.
UPDATE tool_call c
SET ended_at = now(), status = n.status, error_code = n.error_code
FROM (
    SELECT t.call_id,
           CASE i.outcome WHEN 'performed' THEN 'succeeded' WHEN 'not_performed' THEN 'failed' WHEN 'open' THEN 'unknown'
                          WHEN 'unknown' THEN 'unknown' ELSE 'abandoned' END AS status,
           CASE i.outcome WHEN 'not_performed' THEN 'failed' ELSE '' END AS error_code
    FROM tool_call t
    LEFT JOIN write_intent i ON i.tenant = t.tenant AND i.run_id = t.run_id AND i.call_id = t.call_id
    WHERE t.tenant = @tenant AND t.run_id = @run_id
) n
WHERE c.tenant = @tenant AND c.run_id = @run_id AND c.call_id = n.call_id AND c.status IN ('proposed', 'running');

-- name: TranscriptCalls :many
SELECT step, idx, call_id, provider_call_id, tool, status, error_code, envelope, note
FROM tool_call
WHERE tenant = @tenant AND run_id = @run_id AND step < @step AND step >= @from_step
ORDER BY step, idx;

-- name: CompletedCalls :many
-- The newest calls that were carried out or may have been, newest first, with
-- the count of all.
SELECT call_id, tool, (CASE status WHEN 'unknown' THEN 'outcome_unknown' ELSE error_code END)::text AS error_code, count(*) OVER () AS total
FROM tool_call
WHERE tenant = @tenant AND run_id = @run_id AND status IN ('succeeded', 'failed', 'unknown')
ORDER BY step DESC, idx DESC
LIMIT @max_calls;

-- name: ReadToolResult :one
SELECT t.content
FROM tool_result t
JOIN run r ON r.tenant = t.tenant AND r.id = t.run_id
WHERE t.tenant = @tenant AND t.run_id = @run_id AND t.call_id = @call_id AND r.user_id = @user_id AND r.environment = @environment;

-- name: ToolCallsOfRun :many
SELECT c.call_id, c.step, c.idx, c.tool, c.tool_version, c.risk, c.arguments_hash, c.status, c.error_code, c.error_hash, c.result_hash,
       c.executions, c.proposed_at, c.started_at, c.ended_at,
       coalesce(octet_length(r.content), 0)::bigint AS result_bytes, coalesce(octet_length(c.envelope), 0)::bigint AS envelope_bytes
FROM tool_call c
LEFT JOIN tool_result r ON r.tenant = c.tenant AND r.run_id = c.run_id AND r.call_id = c.call_id
WHERE c.tenant = @tenant AND c.run_id = @run_id AND c.step >= @from_step
ORDER BY c.step, c.idx;
