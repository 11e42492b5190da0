package memstore_test

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// note keeps a record of ada's that has a key, and an identity of its own, written
// so long after start.
func (s *subject) note(scope agent.MemoryScope, id, key string, after time.Duration, index db.MemoryIndex) {
	s.Helper()
	s.keep(alone, scope, wrote(id, 1, `"x"`, func(r *db.MemoryRecord) { r.Key, r.Identity, r.WrittenAt = key, id, start.Add(after) }), index)
}

// order is recall without the values.
func (s *subject) order(q db.RecallQuery) string {
	s.Helper()
	return strings.NewReplacer(`.1 `, " ", ` "x"`, "").Replace(s.recall(alone, q))
}

func keyed(limit int, keys ...string) db.RecallQuery {
	q := asked(ofAda)
	q.Limit, q.Keys = limit, keys
	return q
}

// memoryRecallCases are about what is found, and in which order.
var memoryRecallCases = map[string]func(*subject){
	"recall": func(s *subject) {
		s.embedders()
		for _, c := range []struct {
			id, key string
			index   db.MemoryIndex
		}{
			{"m1", "preference.food", axis(0, "tea", "green")}, {"m2", "preference.topic", axis(1, "trains")}, {"m3", "preference.language", axis(2, "english")},
		} {
			s.keep(alone, ofAda, wrote(c.id, 1, `"`+c.id+`"`, func(r *db.MemoryRecord) { r.Key = c.key }), c.index)
		}
		q := asked(ofAda)
		s.want("nothing asked", s.recall(alone, q), "")
		q.Tokens = []string{"green", "buses"}
		s.want("by word", s.recall(alone, q), `m1.1 keyword "m1"`)
		q.Embedder, q.Embedding = flat, []float32{0, 1, 0}
		s.want("by vector too", s.recall(alone, q), `m1.1 keyword "m1"; m2.1 vector "m2"`)
		q.Keys = []string{"preference.language"}
		s.want("by key first", strings.HasPrefix(s.recall(alone, q), `m3.1 exact "m3"; `), true)
		q.Limit = 1
		s.want("one", s.recall(alone, q), `m3.1 exact "m3"`)
		q = asked(ofAda)
		q.Embedder, q.Embedding, q.MinSimilarity = flat, []float32{0.8, 0.6, 0}, 0.7
		s.want("near enough", s.recall(alone, q), `m1.1 vector "m1"`)
		q.MinSimilarity = 0.5
		s.want("nearest first", s.recall(alone, q), `m1.1 vector "m1"; m2.1 vector "m2"`)
		q.Embedder = other
		s.want("another embedder", s.recall(alone, q), "")
		q = asked(ofAda)
		q.Tokens, q.Kinds = []string{"green"}, []agent.MemoryKind{agent.MemoryTask}
		s.want("another kind", s.recall(alone, q), "")
		for what, q := range map[string]db.RecallQuery{
			"no scope": {Kinds: q.Kinds, Now: start, Limit: 1}, "no kind": {Scopes: q.Scopes, Now: start, Limit: 1}, "foreign scope": {Scopes: []agent.MemoryScope{desk}, Kinds: q.Kinds, Now: start, Limit: 1},
		} {
			if _, err := s.memory.Recall(ctx, alone, q); err == nil {
				s.Errorf("%s: no error", what)
			}
		}
	},
	"recall in force": func(s *subject) {
		times := map[string]func(*db.MemoryRecord){
			"now":     func(*db.MemoryRecord) {},
			"later":   func(r *db.MemoryRecord) { r.ValidFrom = until(time.Hour) },
			"earlier": func(r *db.MemoryRecord) { r.ValidUntil = until(time.Millisecond) },
			"kept":    func(r *db.MemoryRecord) { r.ExpiresAt = until(30 * time.Minute) },
		}
		for id, edit := range times {
			s.keep(alone, ofAda, wrote(id, 1, `"`+id+`"`, edit, func(r *db.MemoryRecord) { r.Key = "key." + id }), words("tea"))
		}
		at := func(d time.Duration) map[string]bool {
			q := asked(ofAda)
			q.Tokens, q.Now = []string{"tea"}, start.Add(d)
			found := map[string]bool{}
			hits, err := s.memory.Recall(ctx, alone, q)
			if err != nil {
				s.Fatal(err)
			}
			for _, h := range hits {
				found[h.Record.ID] = true
			}
			return found
		}
		s.want("now", at(time.Second), map[string]bool{"now": true, "kept": true})
		s.want("in an hour", at(time.Hour), map[string]bool{"now": true, "later": true})
	},
	"recall by key": func(s *subject) {
		for i, id := range []string{"e", "a", "d", "c", "b"} {
			s.note(ofAda, id, "key.many", time.Duration(i-10)*time.Minute, words("tea"))
		}
		s.note(ofAda, "z", "key.none", 0, words("payment"))
		s.note(ofAda, "y", "key.one", -time.Hour, words("other"))
		for what, c := range map[string]struct {
			q    db.RecallQuery
			say  []string
			want string
		}{
			"the newest first":                        {keyed(10, "key.many"), nil, "b exact; c exact; d exact; a exact; e exact"},
			"half of the places":                      {keyed(3, "key.many"), []string{"payment"}, "b exact; c exact; z keyword"},
			"or those that stay free":                 {keyed(4, "key.many"), []string{"payment"}, "b exact; c exact; z keyword; d exact"},
			"of four the half is two":                 {keyed(4, "key.many"), []string{"payment", "other"}, "b exact; c exact; y keyword; z keyword"},
			"the only one before the second":          {keyed(2, "key.many", "key.one"), nil, "b exact; y exact"},
			"and then the second, by the keys' order": {keyed(3, "key.one", "key.many"), nil, "y exact; b exact; c exact"},
			"one place":                               {keyed(1, "key.many"), []string{"payment"}, "b exact"},
			"a key that nothing has":                  {keyed(3, "key.nothing"), nil, ""},
			"what has more than a key is not spare":   {keyed(4, "key.many"), []string{"tea"}, "b exact+keyword; c exact+keyword; d exact+keyword; a exact+keyword"},
			"who has no place by key has one by word": {keyed(2, "key.many"), []string{"payment", "tea"}, "b exact+keyword; c exact+keyword"},
		} {
			c.q.Tokens = c.say
			s.want(what, s.order(c.q), c.want)
		}
		// Behind the places there is no hit by key: only the word finds it.
		s.note(ofAda, "w", "key.many", -time.Hour, words("rare"))
		q := keyed(3, "key.many")
		q.Tokens = []string{"rare"}
		s.want("behind", s.order(q), "b exact; c exact; w keyword")
	},
	"recall of the same rank": func(s *subject) {
		s.embedders()
		s.note(ofAda, "b", "key.b", -time.Hour, words("tea"))
		s.note(ofAda, "c", "key.c", time.Hour, axis(0))
		s.note(ofAda, "a", "key.a", -2*time.Hour, axis(0))
		q := asked(ofAda)
		q.Embedder, q.Embedding = flat, []float32{1, 0, 0}
		s.want("as near as another", s.order(q), "a vector; c vector")
		q.Tokens = []string{"tea"}
		s.want("a word before a vector", s.order(q), "b keyword; a vector; c vector")
		s.note(ofAda, "d", "key.d", -3*time.Hour, words("tea"))
		q.Embedding = nil
		s.want("of the same words what was stored last", s.order(q), "d keyword; b keyword")
	},
	"recall by how much a word tells": func(s *subject) {
		role := agent.MemoryScope{Kind: agent.MemoryOfAgent, ID: "helper"}
		s.note(role, "role", "key.role", 0, words("tea"))
		for _, id := range []string{"u1", "u2", "u3"} {
			s.note(ofAda, id, "key."+id, 0, words("tea", "time"))
		}
		// Among ada's tea is in 3 of 3 places, among the role's in the only one:
		// ln(1 + 0.5/3.5) of it and ln(1 + 3.5/0.5) is 0.06; ln(1 + 0.5/1.5) of it and
		// ln(1 + 1.5/0.5) is 0.17.
		q := asked(ofAda, role)
		q.Tokens = []string{"tea", "zeppelin", "tea"}
		s.want("of each subject's own", s.order(q), "role keyword; u3 keyword; u2 keyword; u1 keyword")
		s.note(ofAda, "z", "key.z", 0, words("zeppelin"))
		q = asked(ofAda)
		q.Tokens = []string{"tea", "time", "zeppelin"}
		// tea and time: 2 ln(1 + 4.5/3.5) = 1.65; zeppelin: ln(1 + 6.5/1.5) = 1.67.
		s.want("the rare one", strings.HasPrefix(s.order(q), "z keyword; u3 keyword"), true)
	},
	"recall by direction": func(s *subject) {
		s.embedders()
		s.note(ofAda, "long", "key.a", 0, db.MemoryIndex{Embedder: flat, Embedding: []float32{30, 0, 0}})
		s.note(ofAda, "short", "key.b", 0, db.MemoryIndex{Embedder: flat, Embedding: []float32{0.01, 0.01, 0}})
		q := asked(ofAda)
		q.Embedder, q.Embedding, q.MinSimilarity = flat, []float32{5, 4, 0}, 0.9
		s.want("near", s.order(q), "short vector")
		q.MinSimilarity = 0.7
		s.want("nearer first", s.order(q), "short vector; long vector")
	},
	"recall deep": func(s *subject) {
		s.embedders()
		// Each is found by word and by vector, and of either way 50 are looked at:
		// "first" is the nearest, and the 51st by word.
		s.note(ofAda, "first", "key.first", 0, axis(0, "tea"))
		for i := range 50 {
			s.note(ofAda, fmt.Sprint("m", i), fmt.Sprint("key.", i), 0, axis(0, "tea"))
		}
		q := asked(ofAda)
		q.Tokens, q.Embedder, q.Embedding = []string{"tea"}, flat, []float32{1, 0, 0}
		for limit, want := range map[int]string{25: "", 26: "first keyword+vector"} {
			q.Limit = limit
			found := ""
			for _, h := range strings.Split(s.order(q), "; ") {
				if strings.HasPrefix(h, "first ") {
					found = h
				}
			}
			s.want(fmt.Sprint("among ", limit), found, want)
		}
	},
	"what cannot be asked": func(s *subject) {
		s.embedders()
		q := asked(ofAda)
		for what, edit := range map[string]func(*db.RecallQuery){
			"no limit":   func(q *db.RecallQuery) { q.Limit = 0 },
			"below":      func(q *db.RecallQuery) { q.Limit = -1 },
			"above":      func(q *db.RecallQuery) { q.Limit = db.MaxRecallHits + 1 },
			"no moment":  func(q *db.RecallQuery) { q.Now = time.Time{} },
			"many keys":  func(q *db.RecallQuery) { q.Keys = make([]string, 65) },
			"many words": func(q *db.RecallQuery) { q.Tokens = make([]string, 257) },
		} {
			q := q
			edit(&q)
			_, err := s.memory.Recall(ctx, alone, q)
			s.want(what, err == nil, false)
		}
		for what, vector := range map[string][]float32{"another dimension": {0, 0, 0, 1}, "no direction": {0, 0, 0}} {
			q.Embedder, q.Embedding = flat, vector
			_, err := s.memory.Recall(ctx, alone, q)
			s.want(what, errors.Is(err, db.ErrEmbedding), true)
		}
		q.Embedder, q.Embedding, q.Limit = flat, []float32{1, 0, 0}, db.MaxRecallHits
		s.want("the most", s.order(q), "")
	},
}
