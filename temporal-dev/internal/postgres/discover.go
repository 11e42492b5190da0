// Package postgres finds or fetches a PostgreSQL with pgvector, and runs one cluster of it for one data directory.
package postgres

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// MinMajor is the oldest PostgreSQL that fairlead's schema runs on.
const MinMajor = 15

// Installation is a set of PostgreSQL programs that can load pgvector.
type Installation struct {
	BinDir string
	Major  int
	// Version as the programs print it, "17.12".
	Version string
	// Origin says where it came from, for people: "installed" or "private".
	Origin string
}

func (i Installation) String() string {
	return fmt.Sprintf("PostgreSQL %s (%s, %s)", i.Version, i.Origin, i.BinDir)
}

func (i Installation) program(name string) string { return filepath.Join(i.BinDir, name) }

// installedDirs are the places where distributions and homebrew put PostgreSQL's programs.
func installedDirs() []string {
	return []string{
		"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin", "/usr/lib64/pgsql/bin",
		"/opt/homebrew/opt/postgresql@*/bin", "/usr/local/opt/postgresql@*/bin", "/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
	}
}

// Find returns the newest installed PostgreSQL that is new enough and has pgvector, then the private prefix; ok is false
// when there is none. A major above zero asks for exactly that version, because a data directory can be read by no other.
func Find(ctx context.Context, prefix string, major int) (found Installation, ok bool) {
	dirs := installedDirs()
	if path, err := exec.LookPath("pg_config"); err == nil {
		if out, err := exec.CommandContext(ctx, path, "--bindir").Output(); err == nil {
			dirs = append(dirs, strings.TrimSpace(string(out)))
		}
	}
	if found, ok = newest(ctx, dirs, major); ok {
		found.Origin = "installed"
		return found, true
	}
	found, ok = newest(ctx, []string{filepath.Join(prefix, "usr/lib/postgresql/*/bin")}, major)
	found.Origin = "private"
	return found, ok
}

func newest(ctx context.Context, patterns []string, major int) (Installation, bool) {
	var all []Installation
	for _, pattern := range patterns {
		dirs, _ := filepath.Glob(pattern)
		for _, dir := range dirs {
			if i, err := inspect(ctx, dir); err == nil && (major == 0 || i.Major == major) {
				all = append(all, i)
			}
		}
	}
	if len(all) == 0 {
		return Installation{}, false
	}
	return slices.MaxFunc(all, func(a, b Installation) int { return cmp.Compare(a.Major, b.Major) }), true
}

var versionPattern = regexp.MustCompile(`(\d+)(\.\d+|\S*)`)

// inspect accepts a directory of programs that is new enough and whose extension directory has pgvector.
func inspect(ctx context.Context, bin string) (Installation, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(bin, "postgres"), "--version").Output()
	if err != nil {
		return Installation{}, fmt.Errorf("run postgres --version: %w", err)
	}
	if _, err := os.Stat(filepath.Join(bin, "initdb")); err != nil {
		return Installation{}, fmt.Errorf("find initdb: %w", err)
	}
	version := versionPattern.FindString(string(out))
	major, err := strconv.Atoi(versionPattern.FindStringSubmatch(string(out) + " 0")[1])
	if err != nil || major < MinMajor {
		return Installation{}, fmt.Errorf("PostgreSQL %q in %s is older than %d", version, bin, MinMajor)
	}
	if !hasVector(ctx, bin, major) {
		return Installation{}, fmt.Errorf("PostgreSQL %s in %s has no pgvector", version, bin)
	}
	return Installation{BinDir: bin, Major: major, Version: version}, nil
}

// hasVector looks where pg_config says; a server package may come without it, then where the usual layouts have it.
func hasVector(ctx context.Context, bin string, major int) bool {
	m := strconv.Itoa(major)
	shares := []string{
		filepath.Join(bin, "../../../../share/postgresql", m), // Debian
		filepath.Join(bin, "../share/postgresql@"+m),
		filepath.Join(bin, "../share/postgresql"),
		filepath.Join(bin, "../share"),
	}
	if out, err := exec.CommandContext(ctx, filepath.Join(bin, "pg_config"), "--sharedir").Output(); err == nil {
		shares = append([]string{strings.TrimSpace(string(out))}, shares...)
	}
	return slices.ContainsFunc(shares, func(share string) bool {
		_, err := os.Stat(filepath.Join(share, "extension", "vector.control"))
		return err == nil
	})
}
