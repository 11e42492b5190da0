package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fairlead/fairlead/examples/opspilot/tickets"
)

// size says how large a storm is.
type size struct {
	runs, workers, kills int
	// starting is the time in which runs begin and workers are killed.
	starting time.Duration
	// draining is how long the last run may take after that.
	draining time.Duration
	// confirming is how long people have: long for the outages that the storm
	// makes, and short enough to wait for.
	confirming time.Duration
	// restarts says that the Temporal server and PostgreSQL are restarted.
	restarts bool
}

// plan is everything that goes wrong, and all that people do. It follows from
// the seed; what it meets when it happens does not.
type plan struct {
	seed  uint64
	runs  []runPlan
	kills []killPlan
	// engineAt and postgresAt are when these are restarted; zero is never.
	engineAt, postgresAt time.Duration
}

type runPlan struct {
	at           time.Duration
	conversation int
	user         string
	writes       []writePlan
	// cancelAfter is when the run is canceled, counted from its start; zero is
	// never.
	cancelAfter time.Duration
}

// decision is what people do about a write.
type decision string

const (
	approve decision = "approve"
	decline decision = "decline"
	// ignore lets the plan expire.
	ignore decision = "ignore"
	// twice approves with one token that is sent twice, and another one.
	twice decision = "twice"
	// forge sends forgeries, and approves then.
	forge decision = "forge"
	// forgeOnly sends forgeries alone.
	forgeOnly decision = "forge_only"
)

// approves reports whether a good approval is sent at all.
func (d decision) approves() bool { return d == approve || d == twice || d == forge }

type writePlan struct {
	decision decision
	// after is how long people take.
	after time.Duration
	// opens and lookUps are what the ticket service does with the requests for
	// this write, one each; what comes after them goes well.
	opens, lookUps []tickets.Fault
}

// awayLookUps is more look-ups than a run makes.
const awayLookUps = 100

// away reports whether the write cannot be looked up as long as its run asks.
func (w writePlan) away() bool { return len(w.lookUps) == awayLookUps }

type killPlan struct {
	at     time.Duration
	worker int
	aim    aim
}

// aim says what a kill waits for.
type aim int

const (
	anytime aim = iota
	// beforeEffect is when the next request to open a ticket has arrived,
	// afterEffect when it was carried out and not yet answered.
	beforeEffect
	afterEffect
)

// newPlan is a pure function of its arguments.
func newPlan(seed uint64, s size) plan {
	random := rand.New(rand.NewPCG(seed, 0x7366))
	p := plan{seed: seed}
	for i := range s.runs {
		run := runPlan{
			at: s.starting * time.Duration(i) / time.Duration(s.runs), conversation: i, user: fmt.Sprintf("user-%d", random.IntN(5)),
		}
		if i > 0 && random.IntN(100) < 5 {
			// A newer message in the same conversation, of the same user.
			run.conversation, run.user = p.runs[i-1].conversation, p.runs[i-1].user
		}
		if random.IntN(100) < 8 {
			run.cancelAfter = 300*time.Millisecond + time.Duration(random.Int64N(int64(8*time.Second)))
		}
		for range 1 + pick(random, 70, 25, 5) {
			run.writes = append(run.writes, newWrite(random))
		}
		p.runs = append(p.runs, run)
	}
	for i := range s.kills {
		// One in each slice of the time, somewhere in it.
		slice := s.starting / time.Duration(s.kills)
		p.kills = append(p.kills, killPlan{
			at: slice*time.Duration(i) + time.Duration(random.Int64N(int64(slice))), worker: random.IntN(s.workers),
			aim: []aim{anytime, beforeEffect, afterEffect}[pick(random, 40, 20, 40)],
		})
	}
	if s.restarts {
		p.engineAt, p.postgresAt = s.starting*3/10, s.starting*6/10
		if random.IntN(2) == 0 {
			p.engineAt, p.postgresAt = p.postgresAt, p.engineAt
		}
	}
	return p
}

func newWrite(random *rand.Rand) writePlan {
	w := writePlan{
		decision: []decision{approve, decline, ignore, twice, forge, forgeOnly}[pick(random, 62, 10, 6, 9, 10, 3)],
		after:    time.Duration(random.Int64N(int64(1500 * time.Millisecond))),
	}
	for range pick(random, 40, 45, 15) {
		w.opens = append(w.opens, []tickets.Fault{
			tickets.FaultRefuse, tickets.FaultHangBefore, tickets.FaultHangAfter, tickets.FaultDropBefore, tickets.FaultDropAfter,
		}[pick(random, 10, 20, 25, 20, 25)])
	}
	switch pick(random, 60, 37, 3) {
	case 1:
		for range 1 + random.IntN(3) {
			w.lookUps = append(w.lookUps, []tickets.Fault{
				tickets.FaultRefuse, tickets.FaultHangBefore, tickets.FaultDropBefore, tickets.FaultDropAfter,
			}[random.IntN(4)])
		}
	case 2:
		w.lookUps = slices.Repeat([]tickets.Fault{tickets.FaultRefuse}, awayLookUps)
	}
	return w
}

// pick returns an index with a chance of its percentage.
func pick(random *rand.Rand, percent ...int) int {
	n := random.IntN(100)
	for i, p := range percent {
		if n -= p; n < 0 {
			return i
		}
	}
	return len(percent) - 1
}
