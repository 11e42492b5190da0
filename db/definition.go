package db

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead/fairlead/db/internal/dbsqlc"
)

// Definition is the stored text of an agent definition.
type Definition struct {
	Digest, Name, Version string
	// Body is the definition as JSON.
	Body json.RawMessage
}

// StoreDefinition queues the definition for storing, unless it is there.
func (tx *Tx) StoreDefinition(d Definition) {
	tx.write(exec(tx.q.InsertDefinition, dbsqlc.InsertDefinitionParams{Digest: d.Digest, Name: d.Name, Version: d.Version, Body: d.Body}))
}

// DefinitionBody returns the stored definition of that digest, or ErrNotFound.
// Definitions belong to the deployment, so no scope is needed.
func (db *DB) DefinitionBody(ctx context.Context, digest string) (json.RawMessage, error) {
	body, err := db.q.GetDefinition(ctx, db.pool, digest)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, ErrNotFound
	}
	return body, translate(err)
}
