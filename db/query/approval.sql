-- name: PendingPlans :many
-- Names the plans that a person can still decide about, oldest first: their
-- runs wait, and no newer generation has begun.
SELECT p.run_id, p.call_id, p.revision, p.created_at
FROM write_plan p
JOIN run r ON r.tenant = p.tenant AND r.id = p.run_id
JOIN conversation c ON c.tenant = r.tenant AND c.id = r.conversation_id
WHERE p.tenant = @tenant AND p.status = 'pending' AND p.expires_at > @now
  AND r.status = 'waiting_confirmation' AND r.generation = c.generation
  AND (@environment::text = '' OR r.environment = @environment)
  AND (@run_id::text = '' OR p.run_id = @run_id)
  AND (sqlc.narg('after')::timestamptz IS NULL OR (p.created_at, p.run_id) > (sqlc.narg('after'), @after_run::text))
ORDER BY p.created_at, p.run_id
LIMIT @max_plans;

-- name: GetPlanRevision :one
SELECT * FROM write_plan
WHERE tenant = @tenant AND run_id = @run_id AND call_id = @call_id AND revision = @revision;

-- name: GetQuestion :one
SELECT m.id, m.content
FROM run r
JOIN message m ON m.tenant = r.tenant AND m.id = r.question_message_id
WHERE r.tenant = @tenant AND r.id = @run_id;

-- name: GetResponseOfCall :one
-- The response in which the model proposed a call.
SELECT a.step, a.attempt, a.response
FROM tool_call t
JOIN model_attempt a ON a.tenant = t.tenant AND a.run_id = t.run_id AND a.step = t.step
WHERE t.tenant = @tenant AND t.run_id = @run_id AND t.call_id = @call_id AND a.response IS NOT NULL AND a.failure_code = ''
ORDER BY a.attempt DESC
LIMIT 1;

-- name: GetRefusalOfToken :one
SELECT call_id, code, token_id, approver, at
FROM approval_refusal
WHERE tenant = @tenant AND run_id = @run_id AND token_id = @token_id
ORDER BY id
LIMIT 1;

-- name: UnsettledWrites :many
-- The writes without a known outcome, oldest first, with the plan that was
-- approved.
SELECT sqlc.embed(i), sqlc.embed(p), sqlc.embed(r), c.generation AS current_generation, c.group_id, c.project_id, t.tool, t.tool_version, t.arguments, t.arguments_hash
FROM write_intent i
JOIN write_plan p ON p.tenant = i.tenant AND p.run_id = i.run_id AND p.call_id = i.call_id AND p.revision = i.revision
JOIN tool_call t ON t.tenant = i.tenant AND t.run_id = i.run_id AND t.call_id = i.call_id
JOIN run r ON r.tenant = i.tenant AND r.id = i.run_id
JOIN conversation c ON c.tenant = r.tenant AND c.id = r.conversation_id
WHERE i.tenant = @tenant AND i.outcome IN ('open', 'unknown')
  AND (@environment::text = '' OR r.environment = @environment)
  AND (sqlc.narg('after')::timestamptz IS NULL OR (i.recorded_at, i.key) > (sqlc.narg('after'), @after_key::text))
ORDER BY i.recorded_at, i.key
LIMIT @max_writes;

-- name: SettleWriteIntent :one
-- Records what an operator found out; says whether the outcome was still open.
WITH settled AS (
    UPDATE write_intent
    SET outcome = @outcome, resolved_by = 'operator', resolved_at = @resolved_at::timestamptz, settled_by = @settled_by, settled_note = sqlc.narg('settled_note')
    WHERE tenant = @tenant AND key = @key AND outcome IN ('open', 'unknown')
    RETURNING key
)
SELECT EXISTS (SELECT 1 FROM settled)::boolean AS settled;

-- name: SettleToolCall :exec
-- The outcome of a call whose run ended without knowing it.
UPDATE tool_call
SET status = @status, error_code = @error_code
WHERE tenant = @tenant AND run_id = @run_id AND call_id = @call_id AND status = 'unknown';
