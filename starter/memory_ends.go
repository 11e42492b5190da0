package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
)

// endedMemory is a version that a proposal would end, as its record stands now.
type endedMemory struct {
	agent.MemoryVersion
	// newest is the record's newest version: nil if it is not there any more, or
	// not for the reader to see.
	newest *db.MemoryRecord
	// sealed says that it is there and cannot be read.
	sealed bool
}

// readEnded reads what a proposal would end on behalf of a user or, without one,
// of an operator.
func readEnded(ctx context.Context, m memories, tenant, user string, ends []agent.MemoryVersion) ([]endedMemory, error) {
	list := make([]endedMemory, 0, len(ends))
	for _, version := range ends {
		e := endedMemory{MemoryVersion: version}
		switch record, err := m.Memory(ctx, tenant, user, version.Record); {
		case err == nil:
			e.newest = &record
		case errors.Is(err, db.ErrSealed), errors.Is(err, db.ErrKeysDestroyed):
			e.sealed = true
		case !errors.Is(err, db.ErrNotFound):
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
}

// state says how far what would end is there: in_force, changed since, ended,
// unreadable, or gone for the reader.
func (e endedMemory) state() string {
	switch {
	case e.sealed:
		return "unreadable"
	case e.newest == nil:
		return "gone"
	case e.newest.Status != db.MemoryActive:
		return "ended"
	case e.newest.Version != e.Version:
		return "changed"
	case len(e.newest.Value) == 0:
		return "unreadable"
	}
	return "in_force"
}

// printEnded shows each version that would end: its key, since when it is in
// force, and its value.
func (a *app) printEnded(indent string, ends []endedMemory) {
	for _, e := range ends {
		name := fmt.Sprintf("memory %s, version %d", e.Record, e.Version)
		switch e.state() {
		case "gone":
			fmt.Fprintf(a.out, indent+"%s: it is not there any more, or not for you to see\n", name)
		case "ended":
			fmt.Fprintf(a.out, indent+"%s  %s: it is not in force any more (%s)\n", oneLine(e.newest.Key, 64), name, e.newest.Status)
		case "changed":
			fmt.Fprintf(a.out, indent+"%s  %s: it has changed since, and version %d is in force\n", oneLine(e.newest.Key, 64), name, e.newest.Version)
			a.quote(indent, indented(e.newest.Value))
		case "unreadable":
			fmt.Fprintf(a.out, indent+"%s: its content cannot be read: its keys are gone, or it was damaged\n", name)
		default:
			fmt.Fprintf(a.out, indent+"%s  in force since %s  %s\n", oneLine(e.newest.Key, 64), clock(e.newest.WrittenAt), name)
			a.quote(indent, indented(e.newest.Value))
		}
	}
}

// endedDocument is a version that would end. Value is content: that of the newest
// version.
type endedDocument struct {
	Record  string `json:"record"`
	Version int    `json:"version"`
	// State is in_force, changed, ended, unreadable or gone.
	State   string          `json:"state"`
	Key     string          `json:"key,omitempty"`
	Value   json.RawMessage `json:"value,omitempty"`
	Since   time.Time       `json:"in_force_since,omitzero"`
	Current int             `json:"current_version,omitempty"`
}

func toEndedDocuments(ends []endedMemory) []endedDocument {
	documents := make([]endedDocument, 0, len(ends))
	for _, e := range ends {
		d := endedDocument{Record: e.Record, Version: e.Version, State: e.state()}
		if r := e.newest; r != nil {
			d.Key, d.Value, d.Current = r.Key, r.Value, r.Version
			if r.Status == db.MemoryActive {
				d.Since = r.WrittenAt
			}
		}
		documents = append(documents, d)
	}
	return documents
}
