package activities

import (
	"context"
	"sync"
)

// flights joins calls for the same work inside one process: when Temporal hands
// out an activity again while the first execution still runs here, both get the
// result of one. The zero value is ready.
type flights[K comparable, V any] struct {
	mu      sync.Mutex
	current map[K]*flight[V]
}

type flight[V any] struct {
	done  chan struct{}
	value V
	err   error
}

// do runs work unless it is running already; then it waits for that result. A
// failed result is not shared: whoever waited does the work anew.
func (f *flights[K, V]) do(ctx context.Context, key K, work func() (V, error)) (V, error) {
	for {
		f.mu.Lock()
		running, joined := f.current[key]
		if !joined {
			mine := &flight[V]{done: make(chan struct{})}
			if f.current == nil {
				f.current = make(map[K]*flight[V])
			}
			f.current[key] = mine
			f.mu.Unlock()
			return f.lead(key, mine, work)
		}
		f.mu.Unlock()
		select {
		case <-running.done:
			if running.err == nil {
				return running.value, nil
			}
		case <-ctx.Done():
			var none V
			return none, ctx.Err()
		}
	}
}

func (f *flights[K, V]) lead(key K, mine *flight[V], work func() (V, error)) (V, error) {
	// A panic must not leave others waiting.
	mine.err = errRetry
	defer func() {
		f.mu.Lock()
		delete(f.current, key)
		f.mu.Unlock()
		close(mine.done)
	}()
	mine.value, mine.err = work()
	return mine.value, mine.err
}
