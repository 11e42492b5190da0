package db_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/db/dbtest"
)

// TestPlansOfMemory: no query of memory goes through all that a tenant has, neither
// by a plan that was made while the tables were new nor by one for large ones.
func TestPlansOfMemory(t *testing.T) {
	t.Parallel()
	d, url := dbtest.NewWithURL(t)
	owner := dbtest.Owner(t, url)
	remember(t, d, roomOf("acme", "ada"), recordOf("m1", `"x"`))
	propose(t, d, roomOf("acme", "ada"), "p1", `"x"`)
	// The work of persons and in the background looks up by two keys at once, which
	// pays only once there are rows.
	type query struct{ file, name, args string }
	always := []query{
		{"memory.sql", "MemoryInForce", "'acme', 'production/user/ada', 'ada', 'tone', 'h'"},
		{"memory.sql", "GetMemoryCandidate", "'acme', 'p1', 'ada', '{production/user/ada}'"},
		{"memory.sql", "HoldMemoryCandidate", "'acme', 'p1', 'ada', 'production/user/ada'"},
		{"memory.sql", "OutliveMemoryIdentity", "'acme', 'production/user/ada', 'tone', 'h'"},
		{"memory.sql", "EndMemoryRecord", "'superseded', now(), 'x', 'acme', 'm1', 1, 'production/user/ada'"},
		{"memory.sql", "RepeatMemoryRecord", "now(), now(), 'acme', 'm1', 1, 'production/user/ada'"},
		{"memory.sql", "LastRetraction", "'acme', 'production/user/ada', 'tone', 'h'"},
		{"memory.sql", "DeleteMemoryIndex", "'acme', 'm1'"},
		{"memory_rights.sql", "MemoryVersions", "'acme', 'm1', 'ada'"},
		{"memory_rights.sql", "InfluencesOfRecord", "'acme', 'm1', 'ada', 10"},
		{"memory_erase.sql", "OwnsRecord", "'acme', 'm1', 'ada'"},
		{"memory_erase.sql", "BuryRecord", "'x', 'acme', 'm1', 'ada'"},
		{"memory_erase.sql", "OutliveMemory", "'acme', now(), 10"},
	}
	later := []query{
		{"memory_rights.sql", "ListMemoryRecords", "'acme', 'ada', false, '', '', '', '', 10"},
		{"memory_rights.sql", "CandidatesOfRecord", "'acme', 'ada', 'm1', '{c-m1}', 10"},
		{"memory_rights.sql", "AuditOfMemory", "'acme', 'ada', 'm1', '{c-m1}', 10"},
		{"memory_erase.sql", "BuryMemory", "'x', 'acme', 'ada'"},
		{"memory_erase.sql", "ClearCandidates", "false, 'x', 'acme', 'ada'"},
		{"memory_erase.sql", "PurgeKeywords", "'acme', 'ada', '', 10"},
		{"memory_erase.sql", "PurgeVectors", "'acme', 'ada', '', 10"},
		{"memory_erase.sql", "DueCandidates", "'acme', now(), 10"},
		{"memory_erase.sql", "DueLessons", "'acme', now(), 10"},
	}
	check := func(when string, queries []query) {
		t.Helper()
		for _, q := range queries {
			plan := explain(t, owner, q.file, q.name, q.args)
			for line := range strings.SplitSeq(plan, "\n") {
				if (strings.Contains(line, "Seq Scan on memory_") && !strings.Contains(line, "memory_embedder")) || strings.HasSuffix(line, "Index Cond: (tenant = $1)") ||
					strings.HasSuffix(line, "Index Cond: (tenant = $2)") {
					t.Errorf("%s, %s goes through all that a tenant has:\n%s", when, q.name, plan)
					break
				}
			}
		}
	}
	check("new", always)
	execute(t, owner, "INSERT INTO memory_embedder (name, dimensions, status) VALUES ('e', 1, 'serving')",
		`INSERT INTO memory_record SELECT (r).* FROM (SELECT jsonb_populate_record(m, jsonb_build_object('id', 'x' || n, 'user_id', 'u' || n % 100, 'subject', 'u' || n % 100,
			'scope_id', 'u' || n % 100, 'room', 'production/user/u' || n % 100, 'key', 'k' || n, 'candidate_id', 'x' || n)) AS r
			FROM memory_record m CROSS JOIN generate_series(1, 5000) n WHERE m.id = 'm1' OFFSET 0) x`,
		`INSERT INTO memory_keyword (tenant, record_id, version, room, subject, tokens) SELECT tenant, id, version, room, subject, '{1}' FROM memory_record WHERE id <> 'm1'`,
		`INSERT INTO memory_candidate SELECT (r).* FROM (SELECT jsonb_populate_record(m, jsonb_build_object('id', 'x' || n, 'user_id', 'u' || n % 100, 'subject', 'u' || n % 100,
			'room', 'production/user/u' || n % 100, 'record_id', 'x' || n, 'state', 'merged', 'content', null)) AS r
			FROM memory_candidate m CROSS JOIN generate_series(1, 5000) n WHERE m.id = 'p1' OFFSET 0) x`,
		`INSERT INTO memory_vector (tenant, record_id, embedder_id, version, room, subject, dimensions, shared, embedding)
			SELECT k.tenant, k.record_id, e.id, k.version, k.room, k.subject, 1, false, '[1]' FROM memory_keyword k, memory_embedder e WHERE k.record_id <> 'm1'`,
		"INSERT INTO memory_audit (tenant, actor, action, subject, user_id, record_id, candidate_id) SELECT tenant, 'x', 'x', subject, user_id, id, candidate_id FROM memory_record")
	if _, err := owner.Exec(ctx, "ANALYZE memory_record, memory_keyword, memory_candidate, memory_audit, memory_word, memory_vector"); err != nil {
		t.Fatal(err)
	}
	check("large", append(always, later...))
}
