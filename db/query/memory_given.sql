-- name: LockGiving :exec
-- Two tries to give a run its memories happen one after the other.
SELECT pg_advisory_xact_lock(hashtextextended('fairlead.giving:' || @tenant::text || ':' || @run_id::text, 0));

-- name: GiveMemories :exec
-- Records what a run was given, unless it was given something before.
INSERT INTO memory_influence (tenant, run_id, record_id, version, subject, user_id, rank, via)
SELECT r.tenant, r.id, (@records::text[])[i], (@versions::integer[])[i], (@subjects::text[])[i], r.user_id, i, (@vias::text[])[i]
FROM run r
CROSS JOIN generate_subscripts(@records::text[], 1) AS i
WHERE r.tenant = @tenant AND r.id = @run_id AND r.user_id = @user_id AND r.environment = @environment
  AND NOT EXISTS (SELECT FROM memory_influence g WHERE g.tenant = @tenant AND g.run_id = @run_id);

-- name: CountGivenMemories :one
SELECT count(*) FROM memory_influence i
WHERE i.tenant = @tenant AND i.run_id = @run_id AND i.user_id = @user_id;

-- name: GivenMemories :many
-- What a run was given, as far as that very version is in force.
SELECT sqlc.embed(r)
FROM memory_influence i
JOIN memory_record r ON r.tenant = i.tenant AND r.id = i.record_id AND r.version = i.version
WHERE i.tenant = @tenant AND i.run_id = @run_id AND i.user_id = @user_id
  AND r.room = ANY (@rooms::text[]) AND memory_in_force(r, @at::timestamptz)
ORDER BY i.rank;
