-- name: InsertMemoryVector :exec
-- Nothing happens if the embedder is not one of those that there are vectors of.
INSERT INTO memory_vector (tenant, record_id, embedder_id, version, room, subject, dimensions, shared, sketch, embedding)
SELECT @tenant, @record_id, e.id, @version, @room, @subject, e.dimensions, @shared, sqlc.narg('sketch')::bit(1024), @embedding::halfvec
FROM memory_embedder e
WHERE e.name = @embedder AND e.dimensions = @dimensions AND e.status <> 'retired'
ON CONFLICT (tenant, record_id, embedder_id) DO UPDATE SET version = excluded.version, sketch = excluded.sketch, embedding = excluded.embedding;
