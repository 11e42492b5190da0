-- name: CreateConversation :exec
INSERT INTO conversation (tenant, id, user_id, environment, group_id, project_id)
VALUES (@tenant, @id, @user_id, @environment, @group_id, @project_id)
ON CONFLICT (tenant, id) DO NOTHING;

-- name: LockConversation :one
SELECT user_id, environment, group_id, project_id, version, generation, last_seq, branch
FROM conversation
WHERE tenant = @tenant AND id = @id
FOR NO KEY UPDATE;

-- name: IsErased :one
-- Says whether somebody has asked to have a user erased.
SELECT EXISTS (SELECT FROM memory_erasure e WHERE e.tenant = @tenant AND e.user_id = @user_id AND e.kind = 'subject');

-- name: TakesPart :one
-- Says whether a user is a participant of a group and a project; an empty one
-- has everybody in it.
SELECT (NOT EXISTS (
    SELECT FROM (VALUES ('group', @group_id::text), ('project', @project_id::text)) AS s (kind, id)
    WHERE s.id <> '' AND NOT EXISTS (
        SELECT FROM memory_participant p
        WHERE p.tenant = @tenant AND p.kind = s.kind AND p.id = s.id AND p.user_id = @user_id AND p.removed_at IS NULL)))::boolean AS partakes;

-- name: GetConversation :one
SELECT user_id, environment, version, generation, last_seq, branch
FROM conversation
WHERE tenant = @tenant AND id = @id AND user_id = @user_id AND environment = @environment;

-- name: ShareConversation :one
-- GetConversation that keeps the conversation from going on, and from being
-- rolled back, before the transaction ends: what is read after it fits it.
SELECT user_id, environment, version, generation, last_seq, branch
FROM conversation
WHERE tenant = @tenant AND id = @id AND user_id = @user_id AND environment = @environment
FOR SHARE;

-- name: AdvanceConversation :exec
UPDATE conversation
SET version = version + @submits, generation = generation + @submits, last_seq = last_seq + 1
WHERE tenant = @tenant AND id = @id;

-- name: InsertMessage :exec
-- Advancing and inserting in one statement costs half as much again as in two.
INSERT INTO message (tenant, id, conversation_id, seq, branch, role, content, content_hash, visibility, run_id, parent_id)
VALUES (@tenant, @id, @conversation_id, @seq, @branch, @role, @content, @content_hash, @visibility, @run_id, sqlc.narg('parent_id'));

-- name: InsertNextMessage :one
-- InsertMessage for who advanced the conversation without knowing it.
INSERT INTO message (tenant, id, conversation_id, seq, branch, role, content, content_hash, visibility, run_id, parent_id)
SELECT c.tenant, @id, c.id, c.last_seq, c.branch, @role, @content, @content_hash, @visibility, @run_id, sqlc.narg('parent_id')
FROM conversation c
WHERE c.tenant = @tenant AND c.id = @conversation_id AND c.user_id = @user_id AND c.environment = @environment
RETURNING seq;

-- name: MessagesBeforeRun :many
-- The newest messages up to a run's question, on the question's line, newest
-- first. Line 0 has no path: nothing but it came before. Run and question are
-- looked up one after the other: joined, a plan that was made while the tables
-- were new goes through all of a tenant's.
WITH asked AS MATERIALIZED (
    SELECT r.conversation_id, r.question_message_id
    FROM run r
    WHERE r.tenant = @tenant AND r.id = @run_id
), q AS MATERIALIZED (
    SELECT m.conversation_id, m.id, m.seq, b.path, b.until
    FROM message m
    LEFT JOIN conversation_branch b ON b.tenant = m.tenant AND b.conversation_id = m.conversation_id AND b.branch = m.branch
    WHERE m.tenant = @tenant AND m.conversation_id = (SELECT asked.conversation_id FROM asked)
      AND m.id = (SELECT asked.question_message_id FROM asked)
)
SELECT m.id, m.seq, m.role, m.content, m.run_id, m.created_at
FROM message m
WHERE m.tenant = @tenant AND m.conversation_id = (SELECT q.conversation_id FROM q) AND m.seq <= (SELECT q.seq FROM q)
  AND (m.visibility = 'visible' OR m.id = (SELECT q.id FROM q))
  AND ((SELECT q.path FROM q) IS NULL OR m.seq <= (SELECT q.until FROM q)[array_position((SELECT q.path FROM q), m.branch)])
ORDER BY m.seq DESC
LIMIT @max_messages;

-- name: NewestMessages :many
-- The newest messages of a conversation on its line, newest first.
WITH c AS MATERIALIZED (
    SELECT b.path, b.until
    FROM conversation c
    JOIN conversation_branch b ON b.tenant = c.tenant AND b.conversation_id = c.id AND b.branch = c.branch
    WHERE c.tenant = @tenant AND c.id = @conversation_id
)
SELECT m.id, m.seq, m.role, m.content, m.run_id, m.parent_id, m.created_at
FROM message m
WHERE m.tenant = @tenant AND m.conversation_id = @conversation_id AND m.visibility = 'visible'
  AND ((SELECT c.path FROM c) IS NULL OR m.seq <= (SELECT c.until FROM c)[array_position((SELECT c.path FROM c), m.branch)])
ORDER BY m.seq DESC
LIMIT @max_messages;

-- name: GetAnswer :one
SELECT m.id, m.content
FROM run r
JOIN message m ON m.tenant = r.tenant AND m.id = r.answer_message_id
WHERE r.tenant = @tenant AND r.id = @run_id;

-- name: HasMessage :one
SELECT EXISTS (SELECT 1 FROM message WHERE tenant = @tenant AND id = @id);

-- name: ResealMessage :exec
UPDATE message SET content = @content::bytea WHERE tenant = @tenant AND id = @id;
