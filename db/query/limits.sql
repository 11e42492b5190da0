-- name: GetTenantLimit :many
-- No row or one.
SELECT max_running, max_running_per_user, daily_tokens, daily_cost_micros, user_daily_tokens, user_daily_cost_micros
FROM tenant_limit
WHERE tenant = @tenant;

-- name: GetDailyUsage :many
SELECT user_id, tokens, cost_micros
FROM daily_usage
WHERE tenant = @tenant AND day = @day AND user_id IN ('', @user_id);

-- name: ReserveDaily :exec
SELECT reserve_daily(@tenant, @user_id, @day, @tokens, @cost_micros,
                     sqlc.narg('tenant_tokens'), sqlc.narg('tenant_cost_micros'), sqlc.narg('user_tokens'), sqlc.narg('user_cost_micros'));

-- name: SettleDaily :exec
UPDATE daily_usage
SET tokens = tokens + @tokens, cost_micros = cost_micros + @cost_micros
WHERE tenant = @tenant AND day = @day AND user_id = @user_id;
