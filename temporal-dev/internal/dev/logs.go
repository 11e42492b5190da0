package dev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

const tailLines = 200

// Logs prints the end of both logs and, with follow, what is added until the context ends.
func (d Dev) Logs(ctx context.Context, follow bool) error {
	logs := []struct{ name, path string }{{"postgres", d.Home.PostgresLog()}, {"engine", d.Home.EngineLog()}}
	var out sync.Mutex
	var stops []func()
	found := false
	for _, l := range logs {
		f := newFollower(l.path, 0)
		lines := f.lines()
		if f.err == nil {
			found = true
		} else if !errors.Is(f.err, os.ErrNotExist) {
			return fmt.Errorf("read log: %w", f.err)
		}
		show := func(line string) {
			out.Lock()
			defer out.Unlock()
			d.say("%-8s | %s", l.name, line)
		}
		for _, line := range lines[max(0, len(lines)-tailLines):] {
			show(line)
		}
		if follow {
			stops = append(stops, f.each(show))
		}
	}
	if !found && !follow {
		d.say("there are no logs in %s yet: run `temporal-dev up`", d.Home)
	}
	if follow {
		<-ctx.Done()
		for _, stop := range stops {
			stop()
		}
	}
	return nil
}

// follower reads the whole lines that are added to a file after an offset.
type follower struct {
	path   string
	start  int64
	offset int64
	err    error
}

func newFollower(path string, offset int64) *follower {
	return &follower{path: path, start: offset, offset: offset}
}

// lines returns the complete lines added since the last call.
func (f *follower) lines() []string {
	file, err := os.Open(f.path)
	if f.err = err; err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	// A shorter file is a new one: the log was set aside because it had grown large.
	if info, err := file.Stat(); err == nil && info.Size() < f.offset {
		f.offset = 0
	}
	raw, err := io.ReadAll(io.NewSectionReader(file, f.offset, 1<<62))
	if f.err = err; err != nil {
		return nil
	}
	end := bytes.LastIndexByte(raw, '\n')
	if end < 0 {
		return nil
	}
	f.offset += int64(end) + 1
	return strings.Split(string(raw[:end]), "\n")
}

// each calls show for every further line until the returned function is called; what is there by then is shown first.
func (f *follower) each(show func(string)) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for last := false; ; {
			for _, line := range f.lines() {
				show(line)
			}
			if last {
				return
			}
			select {
			case <-quit:
				last = true
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	return func() { close(quit); <-done }
}

// tail returns the last n lines since the follower's start.
func (f *follower) tail(n int) string {
	lines := newFollower(f.path, f.start).lines()
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
