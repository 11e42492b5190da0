// Command starter starts agent runs and shows them: run, follow, show, list and
// cancel. With pending, approve and decline a person decides about writes, with
// unsettled and settle an operator says what became of one, with snapshot and
// rollback takes a conversation back, and with keys gives a user new keys or
// destroys them. With memory what is remembered is shown, traced, corrected,
// decided about, exported and erased. It talks to Temporal to start, cancel and
// signal, and reads what happened from PostgreSQL. codec-server lets an operator
// read histories in the Web UI; nothing else is served.
//
// Exit codes: 0 the run succeeded (or the command did its work), 1 the run
// failed (or the decision was refused), 2 wrong usage or a request that cannot
// become a run, 3 Temporal or PostgreSQL cannot be reached, or nobody answered in
// time, 4 the run was canceled, 130 interrupted.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the default comes back, so a second one ends the
	// process even if the first is not obeyed.
	context.AfterFunc(ctx, stop)
	a := &app{
		in: os.Stdin, out: os.Stdout, errOut: os.Stderr,
		inTerminal: isTerminal(os.Stdin),
		color:      isTerminal(os.Stdout) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
		openReader: openReader, openEngine: openEngine, openOffice: openOffice, openRecords: openRecords, openKeys: openKeys,
		openMemories: openMemories,
	}
	os.Exit(a.main(ctx, os.Args[1:]))
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
