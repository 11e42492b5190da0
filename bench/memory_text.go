package main

import (
	"context"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// sentenceEnd is where a sentence of a comment ends.
var sentenceEnd = regexp.MustCompile(`[.!?](\s+|$)`)

// sentences returns the distinct sentences in the comments of Go's own source, in
// an order by chance that is the same every time: real text that every machine
// with Go has.
func sentences(ctx context.Context, r *rand.Rand) ([]string, error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("find Go's own source: %w", err)
	}
	var (
		list []string
		seen = map[string]bool{}
	)
	err = filepath.WalkDir(filepath.Join(strings.TrimSpace(string(root)), "src"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil // Some are there to be refused.
		}
		for _, group := range file.Comments {
			for _, s := range sentenceEnd.Split(strings.Join(strings.Fields(group.Text()), " "), -1) {
				if n := strings.Count(s, " ") + 1; n >= 5 && n <= 40 && len(s) <= 400 && !seen[s] && !strings.Contains(s, "license") {
					seen[s] = true
					list = append(list, s)
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the source of the Go library: %w", err)
	}
	if len(list) < 100_000 {
		return nil, errors.New("the source of the Go library has too few comments: is it installed?")
	}
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list, nil
}

// questionOf is a part of a sentence, as somebody asks who half remembers it.
func questionOf(r *rand.Rand, sentence string) string {
	words := strings.Fields(sentence)
	n := min(len(words), 6+r.IntN(6))
	begin := r.IntN(len(words) - n + 1)
	return strings.Join(words[begin:begin+n], " ")
}
