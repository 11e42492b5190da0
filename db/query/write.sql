-- name: HoldConversationOfRun :many
-- Keeps a newer generation from beginning before the transaction ends. Taken
-- before the run's row and its calls', as BeginRun does.
SELECT c.generation
FROM conversation c
WHERE c.tenant = @tenant AND c.id = (SELECT r.conversation_id FROM run r WHERE r.tenant = @tenant AND r.id = @run_id)
FOR NO KEY UPDATE;

-- name: GetWritePlan :one
-- The newest plan of a call.
SELECT * FROM write_plan
WHERE tenant = @tenant AND run_id = @run_id AND call_id = @call_id
ORDER BY revision DESC
LIMIT 1;

-- name: GetWriteIntent :one
SELECT * FROM write_intent
WHERE tenant = @tenant AND run_id = @run_id AND call_id = @call_id;

-- name: InsertWritePlan :exec
INSERT INTO write_plan (tenant, run_id, call_id, revision, tool, tool_version, arguments_hash, resource, resource_version, summary, hash,
                        nonce, policy_digest, created_at, expires_at)
VALUES (@tenant, @run_id, @call_id, @revision, @tool, @tool_version, @arguments_hash, @resource, @resource_version, @summary, @hash,
        @nonce, @policy_digest, @created_at, @expires_at);

-- name: CloseWritePlan :exec
UPDATE write_plan
SET status = @status, decided_by = @decided_by, decided_at = @decided_at::timestamptz, token_id = @token_id
WHERE tenant = @tenant AND run_id = @run_id AND call_id = @call_id AND revision = @revision AND status = 'pending';

-- name: WithdrawWritePlans :exec
UPDATE write_plan
SET status = 'withdrawn', decided_at = now()
WHERE tenant = @tenant AND run_id = @run_id AND status = 'pending';

-- name: InsertWriteIntent :exec
INSERT INTO write_intent (tenant, key, run_id, call_id, revision, arguments_hash, approved_by, policy_digest, recorded_at, sent_at,
                          decisive_at)
VALUES (@tenant, @key, @run_id, @call_id, @revision, @arguments_hash, @approved_by, @policy_digest, @recorded_at, @recorded_at,
        @decisive_at);

-- name: MarkWriteSent :exec
UPDATE write_intent
SET sends = sends + 1, sent_at = @sent_at, decisive_at = greatest(decisive_at, @decisive_at::timestamptz)
WHERE tenant = @tenant AND key = @key AND outcome = 'open';

-- name: ResolveWriteIntent :exec
-- The first outcome stays.
UPDATE write_intent
SET outcome = @outcome, resolved_by = @resolved_by, resolved_at = @resolved_at::timestamptz
WHERE tenant = @tenant AND key = @key AND outcome IN ('open', 'unknown');

-- name: GiveUpWriteIntents :exec
UPDATE write_intent
SET outcome = 'unknown', resolved_at = now()
WHERE tenant = @tenant AND run_id = @run_id AND outcome = 'open';

-- name: CountUnknownWrites :one
SELECT count(*) FROM write_intent
WHERE tenant = @tenant AND run_id = @run_id AND outcome = 'unknown';

-- name: InsertApprovalRefusal :exec
INSERT INTO approval_refusal (tenant, run_id, call_id, code, token_id, approver)
VALUES (@tenant, @run_id, @call_id, @code, @token_id, @approver);

-- name: PlansOfRun :many
SELECT call_id, revision, tool, tool_version, arguments_hash, resource, resource_version, hash, policy_digest, status,
       created_at, expires_at, decided_by, decided_at, token_id
FROM write_plan
WHERE tenant = @tenant AND run_id = @run_id
ORDER BY created_at, call_id, revision;

-- name: IntentsOfRun :many
SELECT * FROM write_intent
WHERE tenant = @tenant AND run_id = @run_id
ORDER BY recorded_at, call_id;

-- name: RefusalsOfRun :many
SELECT call_id, code, token_id, approver, at
FROM approval_refusal
WHERE tenant = @tenant AND run_id = @run_id
ORDER BY id;
