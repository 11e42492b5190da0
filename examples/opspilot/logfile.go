package opspilot

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// maxScanBytes is how much of the end of a log file is searched.
	maxScanBytes = 8 << 20
	// maxLineBytes is the longest line that counts as a log record.
	maxLineBytes = 64 << 10
	// maxFieldBytes is how much of one text field is returned.
	maxFieldBytes = 500
	// maxReturnedLineBytes is the longest line that is returned; of a longer one
	// only time, level and message are.
	maxReturnedLineBytes = 2 << 10
)

// logFilter selects lines. Zero values do not restrict; since is inclusive,
// until exclusive.
type logFilter struct {
	level, contains string
	since, until    time.Time
	limit           int
	newestFirst     bool
}

// searchLog reads at most the last maxScanBytes of the file as it is now.
func searchLog(ctx context.Context, path string, filter logFilter) (foundLines, error) {
	section, fromStart, err := openTail(path)
	if err != nil {
		return foundLines{}, err
	}
	defer section.Close()

	found := foundLines{CountsByLevel: map[string]int{}, ScannedFromStart: fromStart, Lines: []json.RawMessage{}}
	kept := lineWindow{limit: filter.limit, newest: filter.newestFirst}
	wanted := []byte(strings.ToLower(filter.contains))
	reader := bufio.NewReaderSize(section, maxLineBytes)
	skipFirst := !fromStart // it begins somewhere inside a line
	for {
		if err := ctx.Err(); err != nil {
			return foundLines{}, err
		}
		raw, tooLong, err := nextLine(reader)
		if errors.Is(err, io.EOF) {
			break // what follows the last line feed is still being written
		}
		if err != nil {
			return foundLines{}, fmt.Errorf("read log: %w", err)
		}
		if skipFirst {
			skipFirst = false
			continue
		}
		line, ok := parseLogLine(raw)
		if tooLong || !ok {
			found.UnparsedLines++
			continue
		}
		if !filter.matches(line, raw, wanted) {
			continue
		}
		found.MatchedTotal++
		found.CountsByLevel[line.level]++
		if found.FirstTime == nil || line.time.Before(*found.FirstTime) {
			found.FirstTime = &line.time
		}
		if found.LastTime == nil || line.time.After(*found.LastTime) {
			found.LastTime = &line.time
		}
		kept.add(raw)
	}
	found.Lines = kept.lines()
	found.Returned = len(found.Lines)
	return found, nil
}

func (f logFilter) matches(line logLine, raw, wanted []byte) bool {
	return (f.level == "" || line.level == f.level) &&
		(f.since.IsZero() || !line.time.Before(f.since)) &&
		(f.until.IsZero() || line.time.Before(f.until)) &&
		(len(wanted) == 0 || bytes.Contains(bytes.ToLower(raw), wanted))
}

// tail is the end of a file: what is appended later is not part of it.
type tail struct {
	io.Reader
	io.Closer
}

func openTail(path string) (section tail, fromStart bool, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return tail{}, false, fmt.Errorf("open log: %w", err)
	}
	if !info.Mode().IsRegular() { // opening a named pipe would wait for ever
		return tail{}, false, errors.New("open log: not a regular file")
	}
	file, err := os.Open(path)
	if err != nil {
		return tail{}, false, fmt.Errorf("open log: %w", err)
	}
	start := max(0, info.Size()-maxScanBytes)
	return tail{io.NewSectionReader(file, start, info.Size()-start), file}, start == 0, nil
}

// nextLine returns one line without its line feed. A line that is longer than
// the reader's buffer is passed over and reported as tooLong.
func nextLine(reader *bufio.Reader) (line []byte, tooLong bool, err error) {
	line, err = reader.ReadSlice('\n')
	for errors.Is(err, bufio.ErrBufferFull) {
		tooLong = true
		line, err = reader.ReadSlice('\n')
	}
	if err != nil {
		return nil, tooLong, err
	}
	return bytes.TrimSuffix(line, []byte("\n")), tooLong, nil
}

// logLine is the part of a line that every service writes.
type logLine struct {
	time  time.Time
	level string
}

var logLevels = []string{"DEBUG", "INFO", "WARN", "ERROR"}

// parseLogLine accepts one JSON object with time, level and msg, nothing else.
func parseLogLine(raw []byte) (logLine, bool) {
	var fields struct {
		Time    *time.Time `json:"time"`
		Level   string     `json:"level"`
		Message *string    `json:"msg"`
	}
	if !utf8.Valid(raw) || json.Unmarshal(raw, &fields) != nil {
		return logLine{}, false
	}
	if fields.Time == nil || fields.Message == nil || !slices.Contains(logLevels, fields.Level) {
		return logLine{}, false
	}
	return logLine{time: fields.Time.UTC(), level: fields.Level}, true
}

// lineWindow keeps the first or the last lines, up to a number.
type lineWindow struct {
	limit  int
	newest bool
	kept   [][]byte
}

func (w *lineWindow) add(raw []byte) {
	if len(w.kept) == w.limit {
		if !w.newest {
			return
		}
		w.kept = slices.Delete(w.kept, 0, 1)
	}
	w.kept = append(w.kept, bytes.Clone(raw))
}

// lines returns what was kept, shortened, up to maxLogResultBytes.
func (w *lineWindow) lines() []json.RawMessage {
	if w.newest {
		slices.Reverse(w.kept)
	}
	lines, total := []json.RawMessage{}, 0
	for _, raw := range w.kept {
		line := shorten(raw)
		if total += len(line); total > maxLogResultBytes {
			break
		}
		lines = append(lines, line)
	}
	return lines
}

// shorten returns the line with long text fields cut, as valid JSON with its
// fields in order of name, time, level and msg first.
func shorten(raw []byte) json.RawMessage {
	var fields map[string]any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if decoder.Decode(&fields) != nil {
		return json.RawMessage(`{}`) // not reached: the line was parsed before
	}
	for name, value := range fields {
		if text, isText := value.(string); isText {
			fields[name] = cut(text, maxFieldBytes)
		}
	}
	names := slices.Sorted(maps.Keys(fields))
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(fieldRank(a), fieldRank(b)) })
	line := object(fields, names)
	if len(line) > maxReturnedLineBytes {
		fields["shortened"] = true
		line = object(fields, append(slices.Clone(leadingFields), "shortened"))
	}
	return line
}

var leadingFields = []string{"time", "level", "msg"}

func fieldRank(name string) int {
	if rank := slices.Index(leadingFields, name); rank >= 0 {
		return rank
	}
	return len(leadingFields)
}

// object renders the named fields in that order.
func object(fields map[string]any, names []string) json.RawMessage {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	text.WriteByte('{')
	for i, name := range names {
		if i > 0 {
			text.WriteByte(',')
		}
		// Strings, numbers and what was decoded from JSON always encode.
		_ = encoder.Encode(name)
		text.WriteByte(':')
		_ = encoder.Encode(fields[name])
	}
	text.WriteByte('}')
	var compact bytes.Buffer
	_ = json.Compact(&compact, text.Bytes())
	return compact.Bytes()
}

// cut shortens text to at most limit bytes without splitting a character.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit] + "…"
}
