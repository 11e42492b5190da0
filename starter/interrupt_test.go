package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/config"
)

// TestInterruptedBeforeSending: what an interrupt says is for people, and true.
func TestInterruptedBeforeSending(t *testing.T) {
	t.Parallel()
	forget := []string{"memory", "forget", "m-1", "--tenant", "acme", "--user", "ann"}
	ask := []string{"run", "--agent", "opspilot", "--message", "hello", "--run-id", "run-1"}
	keys := fmt.Errorf("keys of user ann: load keys: %w", &db.Error{Kind: context.Canceled})
	for name, test := range map[string]struct {
		args []string
		err  error
		says string
	}{
		"before":     {forget, keys, "Error: interrupted; nothing was sent\n"},
		"under way":  {forget, context.Canceled, "Error: interrupted; the request may have been sent or not, and asking again is safe\n"},
		"run before": {ask, keys, "Error: interrupted; nothing was sent\n"},
		"run":        {ask, context.Canceled, "Error: interrupted; the run may have been started or not, and trying again with --run-id run-1 is safe\n"},
	} {
		c := remembering()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		c.engine.startErr = test.err
		if o := c.invoke(ctx, test.args...); o.code != exitInterrupted || o.errOut != test.says || o.out != "" {
			t.Errorf("%s: %+v", name, o)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	confirm := []string{"memory", "confirm", "p-7", "--tenant", "acme", "--user", "ann", "--yes"}
	c := reviewing()
	c.office.signErr = context.Canceled
	if o := c.invoke(ctx, confirm...); o.code != exitInterrupted || o.errOut != "Error: interrupted; nothing was sent\n" {
		t.Errorf("before the signature: %+v", o)
	}
	c = reviewing()
	c.engine.signalErr = context.Canceled
	if o := c.invoke(ctx, confirm...); o.code != exitInterrupted || o.errOut != "Error: interrupted; the decision may have arrived or not, and deciding again is safe\n" {
		t.Errorf("while it is sent: %+v", o)
	}
	settings, err := config.Load(config.Source{LookupEnv: func(name string) (string, bool) {
		return map[string]string{"TEMPORAL_ADDRESS": "127.0.0.1:1"}[name], name == "TEMPORAL_ADDRESS"
	}})
	if err != nil {
		t.Fatal(err)
	}
	var ended *exit
	if _, err := openEngine(ctx, settings); !errors.As(err, &ended) || ended.code != exitInterrupted || ended.text != "interrupted; nothing was sent" {
		t.Errorf("while Temporal is dialed: %v", err)
	}
	c = remembering()
	c.memories.err = fmt.Errorf("list memories: %w", &db.Error{Kind: context.Canceled})
	if o := c.invoke(ctx, "memory", "list", "--user", "ann"); o.code != exitInterrupted || o.errOut != "Error: interrupted\n" {
		t.Errorf("%+v", o)
	}
	if o := (console{}).invoke(t.Context(), "--help"); !strings.Contains(o.out, "130 interrupted") {
		t.Errorf("%+v", o)
	}
}

// TestDatabaseThatLetsNobodyIn: the server's own word is passed on.
func TestDatabaseThatLetsNobodyIn(t *testing.T) {
	t.Parallel()
	for code, says := range map[string]string{
		"3D000": "there is no such database: postgres://u@h/d, which FAIRLEAD_DATABASE_URL, else DATABASE_URL names",
		"28P01": "PostgreSQL refuses the login of postgres://u@h/d",
		"57P03": "PostgreSQL cannot be reached at postgres://u@h/d; is it running?",
	} {
		c := remembering()
		c.memories.err = fmt.Errorf("list memories: %w", &db.Error{Kind: db.ErrUnavailable, Code: code})
		if o := c.invoke(t.Context(), "memory", "list", "--user", "ann"); o.code != exitUnreachable || !strings.Contains(o.errOut, says) {
			t.Errorf("%s: %+v", code, o)
		}
	}
}
