-- name: InsertSessionEntry :exec
-- Appends what was settled, unless its source said so before.
WITH advanced AS (
    UPDATE conversation
    SET entries = conversation.entries + 1
    WHERE conversation.tenant = @tenant AND conversation.id = @conversation_id
      AND NOT EXISTS (
        SELECT FROM session_entry e
        WHERE e.tenant = @tenant AND e.conversation_id = @conversation_id AND e.run_id = @run_id AND e.call_id = @call_id
          AND e.kind = @kind AND e.key = @key)
    RETURNING conversation.entries
)
INSERT INTO session_entry (tenant, conversation_id, version, kind, key, value, tools, ask, message_id, run_id, call_id, tool, tool_version,
                           branch, seq)
VALUES (@tenant, @conversation_id, coalesce((SELECT a.entries FROM advanced a), 1), @kind, @key, sqlc.narg('value'), @tools, @ask,
        @message_id, @run_id, @call_id, @tool, @tool_version, @branch, @seq)
ON CONFLICT ON CONSTRAINT session_entry_source_key DO NOTHING;

-- name: SessionFacts :many
-- The newest entry of each key on the line of a conversation, or a run's, the
-- newest of them. Of one run's the order of its calls decides, not the order in
-- which they came back. However often a key was settled, it is found at once:
-- the index is entered anew for each key.
-- Line 0 has no path: nothing but it came before.
WITH RECURSIVE c AS MATERIALIZED (
    SELECT c.id, b.path, b.entries
    FROM conversation c
    LEFT JOIN conversation_branch b ON b.tenant = c.tenant AND b.conversation_id = c.id AND b.branch = c.branch
    WHERE c.tenant = @tenant AND c.user_id = @user_id AND c.environment = @environment
      AND c.id = CASE WHEN @run_id::text = '' THEN @conversation_id::text
                      ELSE (SELECT r.conversation_id FROM run r WHERE r.tenant = @tenant AND r.id = @run_id) END
), keys AS (
    (SELECT e.key
     FROM session_entry e
     WHERE e.tenant = @tenant AND e.conversation_id = (SELECT c.id FROM c) AND e.kind = 'fact'
     ORDER BY e.key
     LIMIT 1)
    UNION ALL
    SELECT (SELECT e.key
            FROM session_entry e
            WHERE e.tenant = @tenant AND e.conversation_id = (SELECT c.id FROM c) AND e.kind = 'fact' AND e.key > k.key
            ORDER BY e.key
            LIMIT 1)
    FROM keys k
    WHERE k.key IS NOT NULL
), newest AS (
    SELECT n.version
    FROM keys k
    CROSS JOIN LATERAL (
        SELECT e.version
        FROM session_entry e
        WHERE e.tenant = @tenant AND e.conversation_id = (SELECT c.id FROM c) AND e.kind = 'fact' AND e.key = k.key
          AND ((SELECT c.path FROM c) IS NULL OR e.version <= (SELECT c.entries FROM c)[array_position((SELECT c.path FROM c), e.branch)])
        ORDER BY e.seq DESC, e.place DESC, e.version DESC
        LIMIT 1) n
)
SELECT e.version, e.kind, e.key, e.value, e.tools, e.ask, e.message_id, e.run_id, e.call_id, e.tool, e.tool_version, e.seq, e.created_at
FROM session_entry e
WHERE e.tenant = @tenant AND e.conversation_id = (SELECT c.id FROM c)
  AND e.version = ANY (ARRAY(SELECT n.version FROM newest n ORDER BY n.version DESC LIMIT @max_facts));

-- name: SessionProhibitions :many
-- The newest that was forbidden on any line of a conversation, or a run's, and
-- not lifted on its present one, newest first.
WITH c AS MATERIALIZED (
    SELECT c.id, b.path, b.entries
    FROM conversation c
    LEFT JOIN conversation_branch b ON b.tenant = c.tenant AND b.conversation_id = c.id AND b.branch = c.branch
    WHERE c.tenant = @tenant AND c.user_id = @user_id AND c.environment = @environment
      AND c.id = CASE WHEN @run_id::text = '' THEN @conversation_id::text
                      ELSE (SELECT r.conversation_id FROM run r WHERE r.tenant = @tenant AND r.id = @run_id) END
), lifted AS (
    SELECT e.key, max(e.version) AS version
    FROM session_entry e
    WHERE e.tenant = @tenant AND e.conversation_id = (SELECT c.id FROM c) AND e.kind = 'lift'
      AND ((SELECT c.path FROM c) IS NULL OR e.version <= (SELECT c.entries FROM c)[array_position((SELECT c.path FROM c), e.branch)])
    GROUP BY e.key
)
SELECT e.version, e.kind, e.key, e.value, e.tools, e.ask, e.message_id, e.run_id, e.call_id, e.tool, e.tool_version, e.seq, e.created_at
FROM session_entry e
LEFT JOIN lifted l ON l.key = e.key
WHERE e.tenant = @tenant AND e.conversation_id = (SELECT c.id FROM c) AND e.kind = 'prohibition' AND (l.version IS NULL OR l.version < e.version)
ORDER BY e.version DESC
LIMIT @max_prohibitions;
