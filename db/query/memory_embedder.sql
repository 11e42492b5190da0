-- name: GetEmbedders :many
SELECT e.name, e.dimensions, e.status FROM memory_embedder e WHERE e.status <> 'retired' OR (e.name = @name AND e.dimensions = @dimensions);

-- name: RetireBuildingEmbedders :exec
-- One embedder is built at a time, the one that was asked for last.
UPDATE memory_embedder SET status = 'retired'
WHERE status = 'building' AND NOT (name = @name AND dimensions = @dimensions);

-- name: InsertEmbedder :exec
INSERT INTO memory_embedder AS e (name, dimensions, status)
VALUES (@name, @dimensions, CASE WHEN EXISTS (SELECT FROM memory_embedder s WHERE s.status = 'serving') THEN 'building' ELSE 'serving' END)
ON CONFLICT (name, dimensions) DO UPDATE SET status = excluded.status WHERE e.status = 'retired';

-- name: LockEmbedders :exec
SELECT pg_advisory_xact_lock(hashtextextended('fairlead.embedders', 0));

-- name: RetireServingEmbedder :exec
UPDATE memory_embedder AS s SET status = 'retired'
WHERE s.status = 'serving' AND NOT (s.name = @name AND s.dimensions = @dimensions)
  AND EXISTS (SELECT FROM memory_embedder b WHERE b.name = @name AND b.dimensions = @dimensions AND b.status = 'building');

-- name: ServeEmbedder :exec
UPDATE memory_embedder SET status = 'serving' WHERE name = @name AND dimensions = @dimensions AND status = 'building';

-- name: DropRetiredVectors :many
DELETE FROM memory_vector v
WHERE v.tenant = @tenant AND (v.record_id, v.embedder_id) IN (
    SELECT o.record_id, o.embedder_id
    FROM memory_vector o
    WHERE o.tenant = @tenant AND o.embedder_id IN (SELECT e.id FROM memory_embedder e WHERE e.status = 'retired')
    LIMIT @most)
RETURNING v.record_id;

-- name: UnembeddedRecords :many
-- The records in force of a tenant that have no vector of an embedder.
SELECT sqlc.embed(r)
FROM memory_record r
WHERE r.tenant = @tenant AND r.status = 'active' AND r.id > @after::text
  AND NOT EXISTS (
    SELECT FROM memory_vector v
    WHERE v.tenant = @tenant AND v.record_id = r.id AND v.version = r.version
      AND v.embedder_id = (SELECT e.id FROM memory_embedder e WHERE e.name = @name AND e.dimensions = @dimensions))
ORDER BY r.id
LIMIT @most;

-- name: HoldRecordInForce :many
SELECT r.version FROM memory_record r
WHERE r.tenant = @tenant AND r.id = @record_id AND r.version = @version AND r.status = 'active'
FOR SHARE;
