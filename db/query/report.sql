-- name: ListRuns :many
SELECT r.id, r.user_id, r.conversation_id, r.generation, r.agent, r.definition_version, r.environment, r.status, r.reason, r.detail,
       r.deadline, r.created_at, r.started_at, r.ended_at,
       coalesce(u.last_step, 0)::integer AS last_step, u.tool_calls::integer AS tool_calls,
       u.tokens::bigint AS tokens, u.cost_micros::bigint AS cost_micros, u.unpriced::boolean AS unpriced
FROM run r
CROSS JOIN LATERAL (
    SELECT (SELECT max(a.step) FROM model_attempt a WHERE a.tenant = r.tenant AND a.run_id = r.id) AS last_step,
           (SELECT count(*) FROM tool_call t WHERE t.tenant = r.tenant AND t.run_id = r.id AND t.status IN ('succeeded', 'failed')) AS tool_calls,
           coalesce(sum(l.tokens), 0) AS tokens, coalesce(sum(l.cost_micros), 0) AS cost_micros,
           coalesce(bool_or(l.cost_micros IS NULL), false) AS unpriced
    FROM ledger_entry l
    WHERE l.tenant = r.tenant AND l.run_id = r.id AND l.kind = 'settle'
) u
WHERE r.tenant = @tenant
  AND (@user_id::text = '' OR r.user_id = @user_id)
  AND (@environment::text = '' OR r.environment = @environment)
  AND (@conversation_id::text = '' OR r.conversation_id = @conversation_id)
  AND (@agent::text = '' OR r.agent = @agent)
  AND (@status::text = '' OR r.status = @status)
  AND (sqlc.narg('before')::timestamptz IS NULL OR r.created_at < sqlc.narg('before'))
ORDER BY r.created_at DESC, r.id
LIMIT @max_runs;

-- name: TransitionsOfRun :many
SELECT seq, from_status, to_status, reason, at
FROM run_transition
WHERE tenant = @tenant AND run_id = @run_id
ORDER BY seq;
