package patient

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// maxLogBytes bounds what one life of the service adds to its log.
const maxLogBytes = 16 << 20

// openLog appends to the log file: one JSON object per line, UTC times.
func openLog(path string) (*slog.Logger, io.Closer, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, nil, fmt.Errorf("open log: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, nil, fmt.Errorf("open log: %w", err)
	}
	handler := slog.NewJSONHandler(&boundedWriter{to: file, left: maxLogBytes}, &slog.HandlerOptions{
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.String(slog.TimeKey, a.Value.Time().UTC().Format("2006-01-02T15:04:05.000000Z07:00"))
			}
			return a
		},
	})
	return slog.New(handler), file, nil
}

// boundedWriter drops what exceeds its limit, whole writes at a time.
type boundedWriter struct {
	mu   sync.Mutex
	to   io.Writer
	left int
}

func (w *boundedWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(line) > w.left {
		w.left = 0
		return len(line), nil
	}
	w.left -= len(line)
	return w.to.Write(line)
}

// recent keeps the latest durations, for percentiles.
type recent struct {
	mu    sync.Mutex
	kept  [256]time.Duration
	count int
}

func (r *recent) add(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept[r.count%len(r.kept)] = d
	r.count++
}

// all returns a copy in no particular order.
func (r *recent) all() []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]time.Duration(nil), r.kept[:min(r.count, len(r.kept))]...)
}
