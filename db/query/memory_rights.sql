-- name: ListMemoryRecords :many
-- What belongs to a person or comes from one, by record, of each the newest
-- version first. Two index scans find the records.
SELECT r.*
FROM memory_record r
WHERE r.tenant = @tenant AND (r.subject = @user_id OR r.user_id = @user_id)
  AND (@past::boolean OR r.status = 'active')
  AND r.id = ANY (ARRAY(
    (SELECT DISTINCT a.id
     FROM memory_record a
     WHERE a.tenant = @tenant AND a.subject = @user_id AND a.id > @after AND (@past OR a.status = 'active')
       AND (@environment::text = '' OR a.environment = @environment) AND (@kind::text = '' OR a.kind = @kind) AND (@key::text = '' OR a.key = @key)
     ORDER BY a.id
     LIMIT @max_records)
    UNION
    (SELECT DISTINCT b.id
     FROM memory_record b
     WHERE b.tenant = @tenant AND b.user_id = @user_id AND b.id > @after AND (@past OR b.status = 'active')
       AND (@environment = '' OR b.environment = @environment) AND (@kind = '' OR b.kind = @kind) AND (@key = '' OR b.key = @key)
     ORDER BY b.id
     LIMIT @max_records)
    ORDER BY 1
    LIMIT @max_records))
ORDER BY r.id, r.version DESC;

-- name: MemoryVersions :many
-- All versions of a record, newest first: all of them for nobody, else those that
-- belong to the person or come from the person, or belong to what the person takes
-- part in.
SELECT r.* FROM memory_record r
WHERE r.tenant = @tenant AND r.id = @id
  AND (@user_id::text = '' OR r.subject = @user_id OR r.user_id = @user_id OR EXISTS (
        SELECT FROM memory_participant p
        WHERE p.tenant = @tenant AND p.kind = r.scope_kind AND p.id = r.scope_id AND p.user_id = @user_id AND p.removed_at IS NULL))
ORDER BY r.version DESC;

-- name: MemoryKeys :many
SELECT * FROM subject_key WHERE tenant = @tenant AND subject = ANY (@subjects::text[]);

-- name: CandidatesOfRecord :many
-- Those that versions of a record were made from, or that were merged with it, the
-- newest first: they are kept for good.
SELECT c.*
FROM memory_candidate c
WHERE c.tenant = @tenant AND (@user_id::text = '' OR c.subject = @user_id OR c.user_id = @user_id)
  AND (c.record_id = @record_id::text OR c.id = ANY (@candidates::text[]))
ORDER BY c.created_at DESC, c.id DESC
LIMIT @max_candidates;

-- name: MessageOfMemory :one
-- A message with its conversation, whose keys seal it.
SELECT m.id, m.conversation_id, m.seq, m.role, m.content, m.visibility, m.run_id, m.parent_id, m.created_at, c.user_id
FROM message m
JOIN conversation c ON c.tenant = m.tenant AND c.id = m.conversation_id
WHERE m.tenant = @tenant AND m.id = @id AND (@user_id::text = '' OR c.user_id = @user_id);

-- name: InfluencesOfRecord :many
SELECT run_id, record_id, version, user_id, rank, via, at
FROM memory_influence
WHERE tenant = @tenant AND record_id = @record_id AND (@user_id::text = '' OR user_id = @user_id)
ORDER BY at, run_id
LIMIT @max_influences;

-- name: InfluencesOfRun :many
SELECT run_id, record_id, version, user_id, rank, via, at
FROM memory_influence
WHERE tenant = @tenant AND run_id = @run_id AND (@user_id::text = '' OR user_id = @user_id)
ORDER BY rank;

-- name: AuditOfMemory :many
-- What was done to a record and to the candidates that it was made from.
SELECT *
FROM memory_audit
WHERE tenant = @tenant AND (@user_id::text = '' OR subject = @user_id OR user_id = @user_id)
  AND ((record_id <> '' AND record_id = @record_id) OR (candidate_id <> '' AND candidate_id = ANY (@candidates::text[])))
ORDER BY id
LIMIT @max_entries;

-- name: ListMemoryCandidates :many
-- Of one user or of all, oldest first.
SELECT *
FROM memory_candidate
WHERE tenant = @tenant AND state = ANY (@states::text[]) AND (@user_id::text = '' OR subject = @user_id OR user_id = @user_id)
ORDER BY created_at, id
LIMIT @max_candidates;

-- name: AddParticipant :one
-- Says whether something changed: whoever takes part already goes on doing so.
INSERT INTO memory_participant AS p (tenant, kind, id, user_id, added_by)
VALUES (@tenant, @kind, @id, @user_id, @added_by)
ON CONFLICT (tenant, kind, id, user_id) DO UPDATE
    SET added_by = excluded.added_by, added_at = now(), removed_by = '', removed_at = NULL
    WHERE p.removed_at IS NOT NULL
RETURNING true::boolean AS changed;

-- name: RemoveParticipant :one
UPDATE memory_participant
SET removed_by = @removed_by, removed_at = now()
WHERE tenant = @tenant AND kind = @kind AND id = @id AND user_id = @user_id AND removed_at IS NULL
RETURNING true::boolean AS changed;

-- name: HasParticipant :one
SELECT EXISTS (
    SELECT FROM memory_participant WHERE tenant = @tenant AND kind = @kind AND id = @id AND user_id = @user_id
)::boolean AS found;

-- name: ListParticipants :many
SELECT user_id, added_by, added_at, removed_by, removed_at
FROM memory_participant
WHERE tenant = @tenant AND kind = @kind AND id = @id
ORDER BY user_id;
