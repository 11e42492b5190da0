-- name: RecallMemory :many
-- What is remembered in rooms: what has one of the keys first, then what shares
-- words with the question or is near to it, fused by reciprocal rank. What has a key
-- and nothing else is given half of the places, or those that stay free. Of each
-- key the newest comes before the second of any, so that one of many does not crowd out
-- the only one, and of these in the order of the keys.
--
-- Each way of finding goes through its candidates from the best one on, looks up
-- the primary row, and stops when it has enough: what was deleted and not cleared
-- away yet, or is not in force, takes nobody's place. The best few are found by a
-- sort that keeps no more than those, and all are sorted only if too few of them are
-- in force. LATERAL makes the loops, and so the order in which rows come. IS TRUE
-- keeps the planner from looking rows up by room whose ID is known, which it does
-- while the tables are new.
WITH exact AS MATERIALIZED (
    SELECT n.id, n.version, row_number() OVER (ORDER BY n.nth, n.nth_key, n.written_at DESC, n.id) AS place, @max_hits::integer AS most
    FROM (
        SELECT f.id, f.version, f.written_at, array_position(@keys::text[], b.key) AS nth_key,
               row_number() OVER (PARTITION BY b.key ORDER BY f.written_at DESC, f.id) AS nth
        FROM unnest(@rooms::text[]) AS a (room)
        CROSS JOIN unnest(@keys::text[]) AS b (key)
        CROSS JOIN LATERAL (
            SELECT r.id, r.version, r.written_at
            FROM memory_record r
            WHERE r.tenant = @tenant AND r.room = a.room AND r.key = b.key AND r.status = 'active' AND r.kind = ANY (@kinds::text[])
              AND memory_in_force(r, @at::timestamptz)
            ORDER BY r.written_at DESC, r.id
            LIMIT @max_hits) f) n
    ORDER BY n.nth, n.nth_key, n.written_at DESC, n.id
    LIMIT @max_hits
), asked AS MATERIALIZED (
    -- The words of the question, hashed under the keys of each subject.
    SELECT (@tokens::bigint[])[i] AS token, (@owners::integer[])[i] AS owner
    FROM generate_subscripts(@tokens::bigint[], 1) AS i
), word AS MATERIALIZED (
    SELECT w.token, w.doc
    FROM memory_word w
    WHERE w.tenant = @tenant AND w.room = ANY (@rooms::text[]) AND w.token = ANY (@tokens::bigint[])
), frequency AS MATERIALIZED (
    SELECT w.token, count(*) AS places FROM word w GROUP BY w.token
), rarity AS MATERIALIZED (
    -- The idf of BM25 (Robertson and Zaragoza, 2009, in the form that is never
    -- negative), among the places where a subject has any of the words: as good a
    -- measure as all its records, which nobody needs to count.
    SELECT a.token, a.owner,
           ln(1 + (sum(coalesce(f.places, 0)) OVER (PARTITION BY a.owner) - coalesce(f.places, 0) + 0.5) / (coalesce(f.places, 0) + 0.5))::float8 AS idf
    FROM asked a
    LEFT JOIN frequency f ON f.token = a.token
), weight AS MATERIALIZED (
    -- A word's part in the rarity of all words of the question.
    SELECT y.token, y.idf / sum(y.idf) OVER (PARTITION BY y.owner) AS part FROM rarity y
), scored AS MATERIALIZED (
    SELECT w.doc, sum(g.part) AS score FROM word w JOIN weight g ON g.token = w.token GROUP BY w.doc
), keyword AS MATERIALIZED (
    SELECT f.id, f.version, s.score, s.doc
    FROM (VALUES (0, @first_depth::integer), (@first_depth::integer, 1000000000)) AS t (skipped, taken)
    CROSS JOIN LATERAL (SELECT x.doc, x.score FROM scored x ORDER BY x.score DESC, x.doc DESC OFFSET t.skipped LIMIT t.taken) s
    CROSS JOIN LATERAL (
        SELECT k.record_id, k.version FROM memory_keyword k WHERE k.doc = s.doc AND k.tenant = @tenant AND k.room = ANY (@rooms::text[])
        OFFSET 0) k
    CROSS JOIN LATERAL (
        SELECT r.id, r.version
        FROM memory_record r
        WHERE r.tenant = @tenant AND r.id = k.record_id AND r.version = k.version AND (r.room = ANY (@rooms::text[])) IS TRUE
          AND r.kind = ANY (@kinds::text[]) AND memory_in_force(r, @at::timestamptz)
        OFFSET 0) f
    LIMIT @depth::integer
), question AS MATERIALIZED (
    -- There is none without an embedding.
    SELECT e.id AS embedder_id, sqlc.narg('embedding')::halfvec AS embedding, @sketch::bit(1024) AS sketch
    FROM memory_embedder e
    WHERE e.name = @embedder AND e.dimensions = @dimensions::integer AND e.status <> 'retired' AND sqlc.narg('embedding')::halfvec IS NOT NULL
), own AS MATERIALIZED (
    -- All of a personal scope are compared. One of two indexes has them, and each
    -- branch keeps its best few itself: to bring all together first costs a tenth.
    SELECT f.id, f.version, c.distance
    FROM (VALUES (0, @first_depth::integer), (@first_depth::integer, 1000000000)) AS t (skipped, taken)
    CROSS JOIN LATERAL (
        SELECT n.record_id, n.version, n.distance
        FROM (
            (SELECT v.record_id, v.version, v.embedding <=> (SELECT q.embedding FROM question q) AS distance
             FROM memory_vector v
             WHERE v.tenant = @tenant AND v.room = ANY (@own_rooms::text[]) AND v.embedder_id = (SELECT q.embedder_id FROM question q)
               AND NOT v.shared AND v.dimensions <= 768 AND @dimensions::integer <= 768
             ORDER BY distance, v.record_id
             LIMIT t.skipped + t.taken)
            UNION ALL
            (SELECT v.record_id, v.version, v.embedding <=> (SELECT q.embedding FROM question q) AS distance
             FROM memory_vector v
             WHERE v.tenant = @tenant AND v.room = ANY (@own_rooms::text[]) AND v.embedder_id = (SELECT q.embedder_id FROM question q)
               AND NOT v.shared AND v.dimensions > 768 AND @dimensions::integer > 768
             ORDER BY distance, v.record_id
             LIMIT t.skipped + t.taken)) n
        ORDER BY n.distance, n.record_id
        OFFSET t.skipped LIMIT t.taken) c
    CROSS JOIN LATERAL (
        SELECT r.id, r.version
        FROM memory_record r
        WHERE r.tenant = @tenant AND r.id = c.record_id AND r.version = c.version AND (r.room = ANY (@rooms::text[])) IS TRUE
          AND r.kind = ANY (@kinds::text[]) AND memory_in_force(r, @at::timestamptz)
        OFFSET 0) f
    LIMIT @depth::integer
), shared AS MATERIALIZED (
    -- Of scopes that many people fill those are compared that are near in sketch.
    SELECT f.id, f.version, c.distance
    FROM (VALUES (0, @sketched::integer), (@sketched::integer, 1000000000)) AS t (skipped, taken)
    CROSS JOIN LATERAL (
        SELECT v.record_id, v.version, v.distance
        FROM (
            SELECT n.record_id
            FROM memory_vector n
            WHERE n.tenant = @tenant AND n.room = ANY (@shared_rooms::text[]) AND n.embedder_id = (SELECT q.embedder_id FROM question q) AND n.shared
            ORDER BY n.sketch <~> (SELECT q.sketch FROM question q)
            OFFSET t.skipped LIMIT t.taken) s
        CROSS JOIN LATERAL (
            SELECT n.record_id, n.version, n.embedding <=> (SELECT q.embedding FROM question q) AS distance
            FROM memory_vector n
            WHERE n.tenant = @tenant AND n.record_id = s.record_id AND n.embedder_id = (SELECT q.embedder_id FROM question q)
            OFFSET 0) v
        ORDER BY v.distance, v.record_id) c
    CROSS JOIN LATERAL (
        SELECT r.id, r.version
        FROM memory_record r
        WHERE r.tenant = @tenant AND r.id = c.record_id AND r.version = c.version AND (r.room = ANY (@rooms::text[])) IS TRUE
          AND r.kind = ANY (@kinds::text[]) AND memory_in_force(r, @at::timestamptz)
        OFFSET 0) f
    LIMIT @depth::integer
), vector AS MATERIALIZED (
    SELECT n.id, n.version, n.distance
    FROM (SELECT o.id, o.version, o.distance FROM own o UNION ALL SELECT s.id, s.version, s.distance FROM shared s) n
    WHERE n.distance < @max_distance::float8
    ORDER BY n.distance, n.id
    LIMIT @depth::integer
), fused AS MATERIALIZED (
    -- Cormack, Clarke and Buettcher, "Reciprocal rank fusion outperforms Condorcet
    -- and individual rank learning methods", SIGIR 2009, with their k of 60. A hit
    -- by key counts more than any sum of two ranks.
    SELECT c.id, c.version, sum(c.score)::float8 AS score, string_agg(c.via, '+' ORDER BY c.place)::text AS via,
           min(c.place) AS place, bool_and(c.spare) AS spare
    FROM (
        SELECT x.id, x.version, (1 + 1 / (60 + x.place)::float8) AS score, 'exact' AS via, 1 AS place, 2 * x.place > x.most + 1 AS spare FROM exact x
        UNION ALL
        SELECT k.id, k.version, 1 / (60 + row_number() OVER (ORDER BY k.score DESC, k.doc DESC))::float8, 'keyword', 2, false FROM keyword k
        UNION ALL
        SELECT v.id, v.version, 1 / (60 + row_number() OVER (ORDER BY v.distance, v.id))::float8, 'vector', 3, false FROM vector v) c
    GROUP BY c.id, c.version
    ORDER BY bool_and(c.spare), sum(c.score) DESC, min(c.place), c.id
    LIMIT @max_hits
)
SELECT sqlc.embed(r), f.score, f.via
FROM memory_record r
JOIN fused f ON f.id = r.id AND f.version = r.version
WHERE r.tenant = @tenant AND r.id = ANY (ARRAY(SELECT x.id FROM fused x)) AND (r.room = ANY (@rooms::text[])) IS TRUE
ORDER BY f.spare, f.score DESC, f.place, r.id;
