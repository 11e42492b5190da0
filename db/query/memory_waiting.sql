-- What waits for persons, and what a run has proposed.

-- name: WaitingMemoryCandidates :many
-- Of one user or of all, oldest first.
SELECT *
FROM memory_candidate
WHERE tenant = @tenant AND state = @state::text AND expires_at > @now::timestamptz
  AND (@user_id::text = '' OR user_id = @user_id) AND (@environment::text = '' OR environment = @environment)
  AND (sqlc.narg('after')::timestamptz IS NULL OR (created_at, id) > (sqlc.narg('after'), @after_id::text))
ORDER BY created_at, id
LIMIT @max_candidates;

-- name: CandidateOfTenant :one
SELECT * FROM memory_candidate WHERE tenant = @tenant AND id = @id;

-- name: CandidatesOfRun :many
SELECT * FROM memory_candidate
WHERE tenant = @tenant AND user_id = @user_id AND run_id = @run_id AND run_id <> '' AND room = ANY (@rooms::text[])
ORDER BY created_at, id;
