-- name: SetScope :exec
SELECT set_config('app.tenant', @tenant, true), set_config('app.user', @user_id, true), set_config('app.environment', @environment, true);

-- name: SetScopeAndShareKeys :exec
-- SetScope and ShareSubjectKeys.
SELECT set_config('app.tenant', @tenant, true), set_config('app.user', @user_id, true), set_config('app.environment', @environment, true),
       pg_advisory_xact_lock_shared(hashtextextended('fairlead.keys:' || @tenant::text || ':' || @user_id::text, 0));

