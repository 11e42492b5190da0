-- name: SetScope :exec
SELECT set_config('app.tenant', @tenant, true), set_config('app.user', @user_id, true), set_config('app.environment', @environment, true);
