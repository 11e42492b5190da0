-- name: UnsealedTables :many
SELECT name FROM unsealed ORDER BY name;

-- name: DoneSealing :exec
DELETE FROM unsealed WHERE name = @name;
