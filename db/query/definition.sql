-- name: InsertDefinition :exec
INSERT INTO agent_definition (digest, name, version, body)
VALUES (@digest, @name, @version, @body)
ON CONFLICT (digest) DO NOTHING;

-- name: GetDefinition :one
SELECT body FROM agent_definition WHERE digest = @digest;
