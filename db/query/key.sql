-- name: ShareSubjectKeys :exec
-- Keeps the keys from being rotated and destroyed before the transaction ends.
SELECT pg_advisory_xact_lock_shared(hashtextextended('fairlead.keys:' || @tenant::text || ':' || @subject::text, 0));

-- name: VerifyKeys :exec
-- Fails with FL003 unless the keys are of the version that the caller has in
-- memory. It comes after ShareSubjectKeys in a statement of its own, which sees
-- what that waited for; a function of both would cost twice as much.
SELECT CASE WHEN EXISTS (
    SELECT FROM subject_key k WHERE k.tenant = @tenant AND k.subject = @subject AND k.version = @version AND k.destroyed_at IS NULL
) THEN false ELSE keys_changed() END;

-- name: GetSubjectKey :one
SELECT * FROM subject_key WHERE tenant = @tenant AND subject = @subject;

-- name: SubjectKeyOfRun :one
SELECT k.*
FROM run r
JOIN subject_key k ON k.tenant = r.tenant AND k.subject = r.user_id
WHERE r.tenant = @tenant AND r.id = @run_id;

-- name: SubjectKeysOfUnsettledWrites :many
SELECT k.*
FROM subject_key k
WHERE k.tenant = @tenant AND k.subject IN (
    SELECT r.user_id
    FROM write_intent i
    JOIN run r ON r.tenant = i.tenant AND r.id = i.run_id
    WHERE i.tenant = @tenant AND i.outcome IN ('open', 'unknown'));

-- name: InsertSubjectKey :exec
INSERT INTO subject_key (tenant, subject, data, hash)
VALUES (@tenant, @subject, @data, @hash)
ON CONFLICT (tenant, subject) DO NOTHING;

-- name: LockSubjectKeys :exec
-- Waits for the transactions that use the keys, and keeps others from using
-- them until the commit.
SELECT pg_advisory_xact_lock(hashtextextended('fairlead.keys:' || @tenant::text || ':' || @subject::text, 0));

-- name: RotateSubjectKey :exec
UPDATE subject_key
SET data = @data, hash = @hash, version = version + 1, rotated_at = now()
WHERE tenant = @tenant AND subject = @subject AND version = @version AND destroyed_at IS NULL;

-- name: RewrapSubjectKey :exec
-- The same keys under another key-encryption key, so the version stays.
UPDATE subject_key
SET data = @data, hash = @hash
WHERE tenant = @tenant AND subject = @subject AND version = @version AND destroyed_at IS NULL;

-- name: HindersDestruction :one
-- What needs a subject's keys to come to an end.
SELECT EXISTS (
    SELECT FROM run r
    WHERE r.tenant = @tenant AND r.user_id = @subject AND r.status IN ('queued', 'running', 'waiting_confirmation')
) AS open_run, EXISTS (
    SELECT
    FROM write_intent i
    JOIN run r ON r.tenant = i.tenant AND r.id = i.run_id
    WHERE i.tenant = @tenant AND i.outcome IN ('open', 'unknown') AND r.user_id = @subject
) AS unsettled_write;

-- name: DestroySubjectKey :exec
-- While a run is open, or a write has no outcome, nothing happens.
UPDATE subject_key k
SET data = NULL, hash = NULL, version = k.version + 1, destroyed_at = now(), destroyed_by = @destroyed_by
WHERE k.tenant = @tenant AND k.subject = @subject AND k.destroyed_at IS NULL
  AND NOT EXISTS (SELECT FROM run r WHERE r.tenant = @tenant AND r.user_id = @subject AND r.status IN ('queued', 'running', 'waiting_confirmation'))
  AND NOT EXISTS (
    SELECT
    FROM write_intent i
    JOIN run r ON r.tenant = i.tenant AND r.id = i.run_id
    WHERE i.tenant = @tenant AND i.outcome IN ('open', 'unknown') AND r.user_id = @subject);

-- name: GetDeploymentKey :one
SELECT * FROM deployment_key;

-- name: InsertDeploymentKey :exec
INSERT INTO deployment_key (data, hash) VALUES (@data, @hash) ON CONFLICT (id) DO NOTHING;

-- name: RotateDeploymentKey :exec
UPDATE deployment_key SET data = @data, hash = @hash, version = version + 1, rotated_at = now() WHERE version = @version;

-- name: RewrapDeploymentKey :exec
UPDATE deployment_key SET data = @data, hash = @hash WHERE version = @version;
