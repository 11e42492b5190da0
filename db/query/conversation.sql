-- name: CreateConversation :exec
INSERT INTO conversation (tenant, id, user_id, environment)
VALUES (@tenant, @id, @user_id, @environment)
ON CONFLICT (tenant, id) DO NOTHING;

-- name: LockConversation :one
SELECT user_id, environment, version, generation, last_seq
FROM conversation
WHERE tenant = @tenant AND id = @id
FOR NO KEY UPDATE;

-- name: AdvanceConversation :exec
UPDATE conversation
SET version = version + @submits, generation = generation + @submits, last_seq = last_seq + 1
WHERE tenant = @tenant AND id = @id;

-- name: InsertMessage :exec
INSERT INTO message (tenant, id, conversation_id, seq, role, content, content_hash, visibility, run_id, parent_id)
VALUES (@tenant, @id, @conversation_id, @seq, @role, @content, @content_hash, @visibility, @run_id, sqlc.narg('parent_id'));

-- name: MessagesBeforeRun :many
-- The newest messages up to a run's question, newest first.
SELECT m.id, m.seq, m.role, m.content, m.run_id
FROM run r
JOIN message q ON q.tenant = r.tenant AND q.id = r.question_message_id
JOIN message m ON m.tenant = r.tenant AND m.conversation_id = r.conversation_id AND m.seq <= q.seq
WHERE r.tenant = @tenant AND r.id = @run_id AND (m.visibility = 'visible' OR m.id = q.id)
ORDER BY m.seq DESC
LIMIT @max_messages;

-- name: GetAnswer :one
SELECT m.content
FROM run r
JOIN message m ON m.tenant = r.tenant AND m.id = r.answer_message_id
WHERE r.tenant = @tenant AND r.id = @run_id;

-- name: HasMessage :one
SELECT EXISTS (SELECT 1 FROM message WHERE tenant = @tenant AND id = @id);
