// Package journal is a file to which a program writes what it has done before
// it tells anybody: one JSON object per line, on the disk when Append returns.
// The supervisor of package patient and package tickets keep their keys in it.
// It imports the standard library alone.
package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// File is one journal. It is not safe for concurrent use.
type File struct{ file *os.File }

// Open gives each line that was appended before to read, in order, and opens
// the file for more; it makes file and directory if they are missing. What an
// interrupted Append left at the end is removed. A file that another process
// has open is refused. An error of read is returned.
func Open(path string, read func(line []byte) error) (f *File, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	defer func() {
		if err != nil {
			file.Close()
		}
	}()
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, fmt.Errorf("open journal: another process holds %s: %w", path, err)
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	whole := text[:bytes.LastIndexByte(text, '\n')+1]
	if err := file.Truncate(int64(len(whole))); err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	number := 0
	for line := range bytes.Lines(whole) {
		number++
		if err := read(line); err != nil {
			return nil, fmt.Errorf("read journal: %s:%d: %w", path, number, err)
		}
	}
	return &File{file}, nil
}

// Append writes one line and returns when it is on the disk. After an error
// nobody knows whether it is: open the file anew to find out.
func (f *File) Append(value any) error {
	line, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	if _, err := f.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	if err := f.file.Sync(); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	return nil
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }
