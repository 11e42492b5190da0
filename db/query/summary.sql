-- name: SummaryProgress :one
-- How far the summaries of the line of a conversation, or a run's, go, and what
-- came after them; no more is counted than anybody asks for.
WITH c AS MATERIALIZED (
    SELECT c.id, b.path, b.until
    FROM conversation c
    LEFT JOIN conversation_branch b ON b.tenant = c.tenant AND b.conversation_id = c.id AND b.branch = c.branch
    WHERE c.tenant = @tenant
      AND c.id = CASE WHEN @run_id::text = '' THEN @conversation_id::text
                      ELSE (SELECT r.conversation_id FROM run r WHERE r.tenant = @tenant AND r.id = @run_id) END
), covered AS MATERIALIZED (
    SELECT coalesce(max(s.to_seq), 0) AS seq
    FROM conversation_summary s
    WHERE s.tenant = @tenant AND s.conversation_id = (SELECT c.id FROM c) AND s.status <> 'failed'
      AND ((SELECT c.path FROM c) IS NULL OR s.to_seq <= (SELECT c.until FROM c)[array_position((SELECT c.path FROM c), s.branch)])
)
SELECT (SELECT covered.seq FROM covered)::bigint AS covered,
       (SELECT count(*) FROM (
            SELECT FROM message m
            WHERE m.tenant = @tenant AND m.conversation_id = (SELECT c.id FROM c) AND m.seq > (SELECT covered.seq FROM covered) AND m.visibility = 'visible'
              AND ((SELECT c.path FROM c) IS NULL OR m.seq <= (SELECT c.until FROM c)[array_position((SELECT c.path FROM c), m.branch)])
            LIMIT 1000) n
       )::bigint AS unsummarized,
       (SELECT count(*)
        FROM conversation_summary f
        WHERE f.tenant = @tenant AND f.conversation_id = (SELECT c.id FROM c) AND f.status = 'failed' AND f.from_seq > (SELECT covered.seq FROM covered)
          AND ((SELECT c.path FROM c) IS NULL OR f.to_seq <= (SELECT c.until FROM c)[array_position((SELECT c.path FROM c), f.branch)])
       )::bigint AS failures;

-- name: UnsummarizedMessages :many
-- The messages of a conversation's line that no checked summary covers, oldest
-- first.
WITH c AS MATERIALIZED (
    SELECT c.id, b.path, b.until
    FROM conversation c
    LEFT JOIN conversation_branch b ON b.tenant = c.tenant AND b.conversation_id = c.id AND b.branch = c.branch
    WHERE c.tenant = @tenant AND c.id = @conversation_id AND c.user_id = @user_id AND c.environment = @environment
), covered AS MATERIALIZED (
    SELECT coalesce(max(s.to_seq), 0) AS seq
    FROM conversation_summary s
    WHERE s.tenant = @tenant AND s.conversation_id = (SELECT c.id FROM c) AND s.status <> 'failed'
      AND ((SELECT c.path FROM c) IS NULL OR s.to_seq <= (SELECT c.until FROM c)[array_position((SELECT c.path FROM c), s.branch)])
)
SELECT m.id, m.seq, m.role, m.content, m.run_id, m.created_at
FROM message m
WHERE m.tenant = @tenant AND m.conversation_id = (SELECT c.id FROM c) AND m.seq > (SELECT covered.seq FROM covered) AND m.visibility = 'visible'
  AND ((SELECT c.path FROM c) IS NULL OR m.seq <= (SELECT c.until FROM c)[array_position((SELECT c.path FROM c), m.branch)])
ORDER BY m.seq
LIMIT @max_messages;

-- name: SummariesBeforeRun :many
-- The newest checked summaries of what came before a run's question, on its
-- line, newest first; of those that begin alike the longest comes last.
WITH asked AS MATERIALIZED (
    SELECT r.conversation_id, r.question_message_id
    FROM run r
    WHERE r.tenant = @tenant AND r.id = @run_id
), q AS MATERIALIZED (
    SELECT m.conversation_id, m.seq, b.path, b.until
    FROM message m
    LEFT JOIN conversation_branch b ON b.tenant = m.tenant AND b.conversation_id = m.conversation_id AND b.branch = m.branch
    WHERE m.tenant = @tenant AND m.conversation_id = (SELECT asked.conversation_id FROM asked)
      AND m.id = (SELECT asked.question_message_id FROM asked)
)
SELECT s.from_seq, s.to_seq, s.model, s.revision, s.prompt_version, s.content, s.billed_tokens, s.billed_cost_micros, s.created_at
FROM conversation_summary s
WHERE s.tenant = @tenant AND s.conversation_id = (SELECT q.conversation_id FROM q) AND s.status = 'checked' AND s.to_seq < (SELECT q.seq FROM q)
  AND ((SELECT q.path FROM q) IS NULL OR s.to_seq <= (SELECT q.until FROM q)[array_position((SELECT q.path FROM q), s.branch)])
ORDER BY s.from_seq DESC, s.to_seq
LIMIT @max_summaries;

-- name: InsertSummary :exec
INSERT INTO conversation_summary (tenant, conversation_id, branch, from_seq, to_seq, status, failure, model, revision, prompt_version,
                                  content, billed_tokens, billed_cost_micros)
VALUES (@tenant, @conversation_id, @branch, @from_seq, @to_seq, @status, @failure, @model, @revision, @prompt_version,
        sqlc.narg('content'), @billed_tokens, sqlc.narg('billed_cost_micros'));
