package db

import (
	"encoding/binary"
	"slices"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db/internal/dbsqlc"
)

// memoryTokens returns the keyed hashes of words, sorted and each once: 8 bytes
// tell apart what one subject says, and say nothing to whoever has no keys.
func memoryTokens(r ring, words []string) ([]int64, error) {
	tokens := make([]int64, 0, len(words))
	for _, word := range words {
		if r.err != nil {
			return nil, r.err
		}
		sum, err := r.keys.Hash([]byte(word))
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, int64(binary.BigEndian.Uint64(sum)))
	}
	slices.Sort(tokens)
	return slices.Compact(tokens), nil
}

// sharedScope reports whether many people fill a scope, so that its vectors are
// found through an index.
func sharedScope(kind agent.MemoryScopeKind) bool {
	return kind != agent.MemoryOfUser && kind != agent.MemoryOfConversation
}

// memoryIndexStatements store what a version in force is found by, under the keys
// of its subject: one row of words and, if there is an embedding, one vector.
func memoryIndexStatements(q *dbsqlc.Queries, r ring, m MemoryRecord, index MemoryIndex) ([]statement, error) {
	tokens, err := memoryTokens(r, index.Tokens)
	if err != nil {
		return nil, err
	}
	room := m.Scope.Room(m.Environment)
	statements := []statement{exec(q.InsertMemoryKeyword, dbsqlc.InsertMemoryKeywordParams{
		Tenant: r.owner.Tenant, RecordID: m.ID, Version: int32(m.Version), Room: room, Subject: m.Subject, Tokens: tokens,
	})}
	if len(index.Embedding) > 0 {
		vector, err := memoryVectorStatement(q, r.owner.Tenant, m, index.Embedder, index.Embedding)
		if err != nil {
			return nil, err
		}
		statements = append(statements, vector)
	}
	return statements, nil
}
