-- name: LockRollback :exec
-- Rollbacks of a conversation happen one after the other, on all programs.
SELECT pg_advisory_xact_lock(hashtextextended('fairlead.rollback:' || @tenant::text || ':' || @conversation_id::text, 0));

-- name: HoldLine :one
-- Holds a conversation and says where it is: its line, and the newest message
-- and session entry of it.
SELECT c.id, c.version, c.generation, c.branch, c.entries
FROM conversation c
WHERE c.tenant = @tenant AND c.id = @conversation_id
FOR NO KEY UPDATE;

-- name: NewestSeq :one
-- The newest message of a conversation's line, zero before the first.
WITH c AS MATERIALIZED (
    SELECT c.id, b.path, b.until
    FROM conversation c
    LEFT JOIN conversation_branch b ON b.tenant = c.tenant AND b.conversation_id = c.id AND b.branch = c.branch
    WHERE c.tenant = @tenant AND c.id = @conversation_id
)
SELECT coalesce((
    SELECT m.seq
    FROM message m
    WHERE m.tenant = @tenant AND m.conversation_id = (SELECT c.id FROM c)
      AND ((SELECT c.path FROM c) IS NULL OR m.seq <= (SELECT c.until FROM c)[array_position((SELECT c.path FROM c), m.branch)])
    ORDER BY m.seq DESC
    LIMIT 1), 0)::bigint AS seq;

-- name: InsertSnapshot :one
INSERT INTO conversation_snapshot (tenant, conversation_id, number, branch, seq, entries, label, safety, created_by)
VALUES (@tenant, @conversation_id,
        (SELECT coalesce(max(s.number), 0) + 1 FROM conversation_snapshot s WHERE s.tenant = @tenant AND s.conversation_id = @conversation_id),
        @branch, @seq, @entries, @label, @safety, @created_by)
RETURNING number, created_at;

-- name: GetSnapshot :one
SELECT * FROM conversation_snapshot
WHERE tenant = @tenant AND conversation_id = @conversation_id AND number = @number;

-- name: SnapshotsOfConversation :many
SELECT * FROM conversation_snapshot
WHERE tenant = @tenant AND conversation_id = @conversation_id
ORDER BY number DESC;

-- name: GetBranch :one
SELECT path, until, entries
FROM conversation_branch
WHERE tenant = @tenant AND conversation_id = @conversation_id AND branch = @branch;

-- name: NewestBranch :one
SELECT coalesce(max(branch), 0)::integer AS branch
FROM conversation_branch
WHERE tenant = @tenant AND conversation_id = @conversation_id;

-- name: InsertBranch :exec
INSERT INTO conversation_branch (tenant, conversation_id, branch, path, until, entries, snapshot, created_by)
VALUES (@tenant, @conversation_id, @branch, @path, @until, @entries, @snapshot, @created_by);

-- name: TakeBranch :exec
-- Moves a conversation to a line; runs of the old one are fenced.
UPDATE conversation
SET branch = @branch, version = version + 1, generation = generation + 1
WHERE tenant = @tenant AND id = @conversation_id;

-- name: CountHidden :one
-- The messages of one line that are not on the other.
SELECT count(*)
FROM message m
WHERE m.tenant = @tenant AND m.conversation_id = @conversation_id AND m.visibility <> 'hidden'
  AND m.seq <= (@old_until::bigint[])[array_position(@old_path::integer[], m.branch)]
  AND coalesce(m.seq > (@new_until::bigint[])[array_position(@new_path::integer[], m.branch)], true);

-- name: WritesSince :many
-- The effects that happened, or may have happened, after a time that the database
-- stamped. Workers stamp the effects: a minute is left to their clocks, so that
-- one too many is listed rather than one too few.
SELECT i.run_id, i.call_id, t.tool, i.outcome
FROM run r
JOIN write_intent i ON i.tenant = r.tenant AND i.run_id = r.id
JOIN tool_call t ON t.tenant = i.tenant AND t.run_id = i.run_id AND t.call_id = i.call_id
WHERE r.tenant = @tenant AND r.conversation_id = @conversation_id AND i.outcome <> 'not_performed'
  AND (i.resolved_at IS NULL OR i.resolved_at + make_interval(mins => 1) > @since::timestamptz)
ORDER BY i.recorded_at, i.run_id, i.call_id;
