package activities

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.uber.org/zap"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/model"
)

const (
	// embedAtOnce is how many records are embedded in one request.
	embedAtOnce = 64
	// reindexPages is how many requests one piece of a re-index makes of a tenant at
	// most: texts that the embedder refuses are asked for again by each piece.
	reindexPages = 40
	// reindexTimeout bounds one piece of a re-index.
	reindexTimeout = 2 * time.Minute
	// batchPatience bounds one request of a re-index to the embedder, which may
	// take longer than a recall waits.
	batchPatience = 30 * time.Second
	// promoteAtOnce bounds the vectors of other embedders that are dropped in one
	// step.
	promoteAtOnce = 5_000
)

// typeEmbedder is the type of the error of an embedder that gives what it does not
// promise: nobody should store that.
const typeEmbedder = "Embedder"

// Reindex computes one piece of the vectors of the embedder that is being built,
// in all tenants, while the old one's go on serving. When none is missing it lets
// the new ones serve and drops the others.
func (r *Runs) Reindex(ctx context.Context, in agent.ReindexInput) (out agent.ReindexOutput, err error) {
	defer r.contain(agent.ActivityReindex, agent.RunRef{}, &err)
	out, err = r.reindex(ctx, in)
	return out, r.faultOf(ctx, agent.ActivityReindex, err, zap.String("embedder", in.Embedder))
}

// Building returns the name of this worker's embedder while its vectors are being
// built and those of another one answer recalls; else, and without memory, it is
// empty.
func (r *Runs) Building(ctx context.Context) (string, error) {
	if r.memory == nil {
		return "", nil
	}
	current := embedderOf(r.embedders[0])
	state, err := r.memory.Embedders(ctx, current)
	if err != nil || state.Building != current {
		return "", err
	}
	return current.Name, nil
}

func (r *Runs) reindex(ctx context.Context, in agent.ReindexInput) (out agent.ReindexOutput, err error) {
	if r.memory == nil {
		return out, errNoMemory
	}
	current := r.embedders[0]
	if in.Embedder != "" && in.Embedder != current.Name() {
		return out, fmt.Errorf("%w: this worker's embedder is not the one that is being built", errRetry)
	}
	work, done := r.bound(ctx, time.Now().Add(reindexTimeout), 0)
	defer done()
	// It makes the embedder known.
	if _, err := r.memory.Embedders(work, embedderOf(current)); err != nil {
		return out, err
	}
	tenants, err := r.memory.MemoryTenants(work)
	if err != nil {
		return out, err
	}
	for _, tenant := range tenants {
		v, err := r.vectorize(work, current, tenant, reindexPages)
		out.Embedded += v.embedded
		out.Failed += v.failed
		switch {
		case errors.Is(err, errEmbedder):
			return out, fmt.Errorf("%w: %w", errRetry, err)
		case err != nil:
			return out, err
		case v.more:
			return out, nil // the next piece goes on
		}
	}
	// What no text can be embedded of is found by its words.
	out.Done, err = r.memory.PromoteEmbedder(work, embedderOf(current), promoteAtOnce)
	return out, err
}

// vectorized counts what one call of vectorize did.
type vectorized struct {
	embedded, failed int
	// more says that there may be records left without a vector.
	more bool
}

// embedder returns the embedder that vectors are of, if this worker has it.
func (r *Runs) embedder(of db.MemoryEmbedder) (model.Embedder, bool) {
	i := slices.IndexFunc(r.embedders, func(e model.Embedder) bool { return embedderOf(e) == of })
	if i < 0 {
		return nil, false
	}
	return r.embedders[i], true
}

// vectorize adds the vectors of records in force of a tenant that have none of the
// embedder, in at most so many pages of embedAtOnce. Those whose texts the embedder
// refuses do not hold up the ones behind them. An error that wraps errEmbedder says
// that the embedder does not answer now.
func (r *Runs) vectorize(ctx context.Context, e model.Embedder, tenant string, pages int) (v vectorized, err error) {
	for after := ""; pages > 0; pages-- {
		records, err := r.memory.Unembedded(ctx, tenant, embedderOf(e), after, embedAtOnce)
		if err != nil {
			return v, err
		}
		if len(records) > 0 {
			if err := r.vectorizeThese(ctx, e, tenant, records, &v); err != nil {
				return v, err
			}
		}
		if len(records) < embedAtOnce {
			return v, nil
		}
		after = records[len(records)-1].ID
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < batchPatience {
			break
		}
	}
	// What was refused on all pages stays; the rest goes on.
	v.more = v.embedded > 0
	return v, nil
}

func (r *Runs) vectorizeThese(ctx context.Context, e model.Embedder, tenant string, records []db.MemoryRecord, v *vectorized) error {
	texts := make([]string, len(records))
	for i, m := range records {
		texts[i] = memoryText(m.Key, m.Value)
	}
	vectors, err := r.embedAll(ctx, e, texts)
	if err != nil {
		return err
	}
	for i, m := range records {
		if !usable(embedderOf(e), vectors[i]) {
			v.failed++
			continue
		}
		// One that is not in force any more needs none.
		if err := r.memory.StoreVector(ctx, tenant, m, embedderOf(e), vectors[i]); err != nil && !gone(err) && !errors.Is(err, db.ErrConflict) {
			return err
		}
		v.embedded++
	}
	return nil
}

// embedAll embeds texts, together if that can be and else one by one. The vector
// of a text that the embedder refuses is nil.
func (r *Runs) embedAll(ctx context.Context, e model.Embedder, texts []string) ([][]float32, error) {
	vectors, err := embed(ctx, e, texts, batchPatience)
	if err == nil {
		return vectors, fits(e, vectors)
	}
	if !refusesText(err) {
		return nil, embedderFault(err)
	}
	vectors = make([][]float32, len(texts))
	for i, text := range texts {
		one, err := embed(ctx, e, []string{text}, batchPatience)
		switch {
		case err == nil:
			vectors[i] = one[0]
		case !refusesText(err):
			return nil, embedderFault(err)
		}
	}
	return vectors, fits(e, vectors)
}

// fits refuses vectors of another length than the embedder has promised.
func fits(e model.Embedder, vectors [][]float32) error {
	for _, v := range vectors {
		if v != nil && len(v) != e.Dimensions() {
			return temporal.NewNonRetryableApplicationError(
				fmt.Sprintf("embedder %s gave a vector of %d dimensions instead of %d: give it another name, and its vectors are computed anew",
					e.Name(), len(v), e.Dimensions()),
				typeEmbedder, nil)
		}
	}
	return nil
}

// usable reports whether a vector is one that can be compared: of the embedder's
// length, and with a direction.
func usable(e db.MemoryEmbedder, vector []float32) bool {
	if len(vector) != e.Dimensions {
		return false
	}
	var square float64
	for _, x := range vector {
		square += float64(x) * float64(x)
	}
	return square > 0 && !math.IsInf(square, 0) // which NaN is not either
}

// embedderFault says what a failed request to the embedder means. Its own text may
// hold content.
func embedderFault(err error) error {
	var failed *model.Error
	if errors.As(err, &failed) && failed.Kind == model.KindMalformed {
		return temporal.NewNonRetryableApplicationError("the embedder gave what it does not promise, such as another dimension", typeEmbedder, nil)
	}
	return errEmbedder
}

// refusesText reports whether the embedder would refuse the same texts again.
func refusesText(err error) bool {
	var failed *model.Error
	if !errors.As(err, &failed) {
		return false
	}
	switch failed.Kind {
	case model.KindInvalidRequest, model.KindContextOverflow, model.KindContentPolicy:
		return true
	default:
		return false
	}
}
