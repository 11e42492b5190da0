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
-- Records the outcome of a call that has none yet; says whether it did.
WITH finished AS (
    UPDATE tool_call
    SET status = @status, error_code = @error_code, error_hash = @error_hash, envelope = @envelope::text, result_hash = @result_hash,
        executions = GREATEST(executions, 1), started_at = coalesce(started_at, @started_at::timestamptz), ended_at = now()
    WHERE tool_call.tenant = @tenant AND tool_call.run_id = @run_id AND tool_call.call_id = @call_id
      AND tool_call.status IN ('proposed', 'running', 'unknown')
    RETURNING tool_call.tenant, tool_call.run_id, tool_call.call_id
), stored AS (
    INSERT INTO tool_result (tenant, run_id, call_id, content, content_type, hash)
    SELECT f.tenant, f.run_id, f.call_id, @content::bytea, @content_type, @result_hash FROM finished f
    WHERE @status = 'succeeded'
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
SELECT step, idx, provider_call_id, tool, envelope
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
-- A piece of a result, and the size of the whole. substring counts from 1.
SELECT substring(t.content FROM @first_byte::integer FOR @max_bytes::integer)::bytea AS chunk, octet_length(t.content)::bigint AS total
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
