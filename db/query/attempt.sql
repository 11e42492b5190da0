-- name: AttemptsOfStep :many
SELECT a.attempt, a.try, a.status, a.reserved_tokens, a.reserved_cost_micros, a.input_tokens, a.cached_input_tokens,
       a.output_tokens, a.action, s.tokens AS billed_tokens, s.cost_micros AS billed_cost_micros, s.usage_known
FROM model_attempt a
LEFT JOIN ledger_entry s ON s.tenant = a.tenant AND s.run_id = a.run_id AND s.step = a.step AND s.attempt = a.attempt AND s.kind = 'settle'
WHERE a.tenant = @tenant AND a.run_id = @run_id AND a.step = @step
ORDER BY a.attempt;

-- name: Transcript :many
-- The newest responses of a run that belong into its next request, newest
-- first: proposed calls, and outputs that the model has to correct.
SELECT step, attempt, failure_code, response
FROM model_attempt
WHERE tenant = @tenant AND run_id = @run_id AND step >= @from_step AND step <= @step AND response IS NOT NULL
  AND failure_code IN ('', 'malformed_output')
ORDER BY step DESC, attempt DESC
LIMIT @max_responses;

-- name: StartAttempt :exec
WITH started AS (
    INSERT INTO model_attempt (tenant, run_id, step, attempt, try, model, provider, status, reserved_tokens, reserved_cost_micros, prompt)
    VALUES (@tenant, @run_id, @step, @attempt, @try, @model, @provider, 'started', @reserved_tokens, sqlc.narg('reserved_cost_micros'),
            sqlc.narg('prompt'))
    RETURNING model_attempt.tenant, model_attempt.run_id, model_attempt.step, model_attempt.attempt,
              model_attempt.reserved_tokens, model_attempt.reserved_cost_micros
)
INSERT INTO ledger_entry (tenant, run_id, step, attempt, kind, tokens, cost_micros, usage_known)
SELECT s.tenant, s.run_id, s.step, s.attempt, 'reserve', s.reserved_tokens, s.reserved_cost_micros, false FROM started s;

-- name: FinishAttempt :exec
-- Ends an attempt and settles it. The settle is inserted whether or not the
-- attempt was still started: of two ends the second fails on the ledger's key.
WITH finished AS (
    UPDATE model_attempt
    SET status = @status, input_tokens = sqlc.narg('input_tokens'), cached_input_tokens = sqlc.narg('cached_input_tokens'),
        output_tokens = sqlc.narg('output_tokens'), failure_code = @failure_code, finish = @finish, revision = @revision,
        provider_request_id = @provider_request_id, response = sqlc.narg('response'), action = sqlc.narg('action'), ended_at = now()
    WHERE model_attempt.tenant = @tenant AND model_attempt.run_id = @run_id AND model_attempt.step = @step
      AND model_attempt.attempt = @attempt AND model_attempt.status = 'started'
)
INSERT INTO ledger_entry (tenant, run_id, step, attempt, kind, tokens, cost_micros, usage_known)
VALUES (@tenant, @run_id, @step, @attempt, 'settle', @billed_tokens, sqlc.narg('billed_cost_micros'), @usage_known);

-- name: LoseOpenAttempts :exec
-- Ends every attempt of a run that is still started.
WITH lost AS (
    UPDATE model_attempt
    SET status = 'lost', ended_at = now()
    WHERE model_attempt.tenant = @tenant AND model_attempt.run_id = @run_id AND model_attempt.status = 'started'
    RETURNING model_attempt.tenant, model_attempt.run_id, model_attempt.step, model_attempt.attempt,
              model_attempt.reserved_tokens, model_attempt.reserved_cost_micros
)
INSERT INTO ledger_entry (tenant, run_id, step, attempt, kind, tokens, cost_micros, usage_known)
SELECT l.tenant, l.run_id, l.step, l.attempt, 'settle', l.reserved_tokens, l.reserved_cost_micros, false FROM lost l;

-- name: AttemptsOfRun :many
SELECT a.step, a.attempt, a.try, a.model, a.provider, a.status, a.reserved_tokens, a.reserved_cost_micros, a.input_tokens,
       a.cached_input_tokens, a.output_tokens, a.failure_code, a.finish, a.revision, a.provider_request_id, a.prompt, a.started_at, a.ended_at,
       s.tokens AS billed_tokens, s.cost_micros AS billed_cost_micros, s.usage_known
FROM model_attempt a
LEFT JOIN ledger_entry s ON s.tenant = a.tenant AND s.run_id = a.run_id AND s.step = a.step AND s.attempt = a.attempt AND s.kind = 'settle'
WHERE a.tenant = @tenant AND a.run_id = @run_id AND a.step >= @from_step
ORDER BY a.step, a.attempt;
