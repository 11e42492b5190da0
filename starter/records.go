package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/codec"
	"github.com/fairlead/fairlead/internal/config"
)

// records is what operators change; *db.DB implements it.
type records interface {
	TakeSnapshot(ctx context.Context, tenant, conversation, label, by string) (db.Snapshot, error)
	Snapshots(ctx context.Context, tenant, conversation string) ([]db.Snapshot, error)
	RollBack(ctx context.Context, tenant, conversation, snapshotID, by string) (db.Rollback, error)
	RotateKeys(ctx context.Context, tenant, subject string) error
	DestroyKeys(ctx context.Context, tenant, subject, by string) error
	Close()
}

func openRecords(ctx context.Context, settings config.Config) (records, error) {
	database, err := openDatabase(ctx, settings)
	if err != nil {
		return nil, err
	}
	return database, nil
}

// keySource is what the codec server opens payloads with; *db.DB implements it.
type keySource interface {
	codec.Source
	Close()
}

func openKeys(ctx context.Context, settings config.Config) (keySource, error) {
	database, err := openDatabase(ctx, settings)
	if err != nil {
		return nil, err
	}
	return database, nil
}

// change opens the records, has work done on them within their time, and
// explains its error. missing says what ErrNotFound means.
func (a *app) change(ctx context.Context, missing string, work func(context.Context, records) error) error {
	if err := a.requireDatabase(); err != nil {
		return err
	}
	r, err := a.openRecords(ctx, a.settings)
	if err != nil {
		return err
	}
	defer r.Close()
	ctx, cancel := context.WithTimeout(ctx, 4*callTimeout)
	defer cancel()
	switch err := work(ctx, r); {
	case errors.Is(err, db.ErrNotFound):
		return usagef("%s", missing)
	default:
		return a.explain(err, "", "")
	}
}

// explainConflict is for work that somebody else was faster with.
func explainConflict(err error, format string, args ...any) error {
	if errors.Is(err, db.ErrConflict) {
		return &exit{exitRunFailed, fmt.Sprintf(format, args...)}
	}
	return err
}
