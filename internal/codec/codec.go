// Package codec seals what enters a history (CONV-6, OBS-2): a Temporal data
// converter for programs that reach the database, and the codec server through
// which an authorized operator reads histories in the Web UI and a program
// without the database starts runs.
//
// A payload is sealed under the keys of the subject that it names, so it goes
// unreadable with them, in every copy of the history. What names nobody, or a
// user and no content, is sealed under the deployment's keys: it holds decisions and
// identifiers. Two
// things stay readable without decoding, because an operator works with them
// (OBS-3) and they never hold content: bare strings, which are the summaries of
// activities and timers, and the description that the Web UI asks a workflow
// for. Error messages and their details are not sealed either: they hold none.
//
// It imports the Temporal SDK, vault, config for the operators, and db for the
// errors of its keys, and is called by worker/host, the starter and tests.
package codec

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/vault"
)

// Encoding is the encoding of a sealed payload, and the names of its metadata:
// identifiers that say whose keys open it.
const (
	Encoding        = "binary/encrypted"
	metadataTenant  = "tenant"
	metadataSubject = "subject"
)

// Encodings of the SDK that are looked into.
const (
	encodingNil  = "binary/null"
	encodingJSON = "json/plain"
	// descriptionType is the message that answers the Web UI's question for a
	// workflow's description.
	descriptionType = "temporal.api.sdk.v1.WorkflowMetadata"
)

// keysPatience bounds the wait for keys, well within the 10 s that Temporal
// gives a workflow task.
const keysPatience = 4 * time.Second

// Source has the keys; *db.DB implements it.
type Source interface {
	// Keys returns the keys of an owner, made if there are none yet. They may
	// come from memory.
	Keys(ctx context.Context, owner vault.Owner) (*vault.Keys, error)
	// LookUpKeys is Keys that makes none: db.ErrNotFound if there are none. Who
	// sends a payload says whose it is, and must not fill the store with names.
	LookUpKeys(ctx context.Context, owner vault.Owner) (*vault.Keys, error)
	// FreshKeys is Keys that does not answer from memory, for a value that
	// cannot be opened: its keys may have been rotated elsewhere.
	FreshKeys(ctx context.Context, owner vault.Owner) (*vault.Keys, error)
}

// payloadCodec is a converter.PayloadCodec. Keys that cannot be had now are a
// *converter.WorkflowTaskFailureError: inside a workflow task it fails the task,
// which Temporal tries again with pauses, and never the run.
type payloadCodec struct {
	source Source
	// deployment are the deployment's keys as last seen. Nobody destroys them, so
	// they serve while the source is away.
	deployment *atomic.Pointer[vault.Keys]
	ctx        context.Context
}

func newPayloadCodec(source Source) *payloadCodec {
	return &payloadCodec{source, new(atomic.Pointer[vault.Keys]), context.Background()}
}

// with returns the codec for calls that end with ctx.
func (c *payloadCodec) with(ctx context.Context) *payloadCodec {
	return &payloadCodec{c.source, c.deployment, ctx}
}

// Encode implements converter.PayloadCodec.
func (c *payloadCodec) Encode(payloads []*common.Payload) ([]*common.Payload, error) {
	return c.each(payloads, c.seal)
}

// Decode implements converter.PayloadCodec. What is not sealed passes: older
// histories, and signals of programs without keys.
func (c *payloadCodec) Decode(payloads []*common.Payload) ([]*common.Payload, error) {
	return c.each(payloads, c.open)
}

func (c *payloadCodec) each(payloads []*common.Payload, convert func(context.Context, *common.Payload) (*common.Payload, error)) ([]*common.Payload, error) {
	ctx, cancel := context.WithTimeout(c.ctx, keysPatience)
	defer cancel()
	converted := make([]*common.Payload, len(payloads))
	for i, p := range payloads {
		var err error
		if converted[i], err = convert(ctx, p); err != nil {
			return nil, err
		}
	}
	return converted, nil
}

// bound binds a sealed payload to its owner.
func bound(owner vault.Owner) []byte { return vault.Bind("payload", owner.Tenant, owner.Subject) }

func (c *payloadCodec) seal(ctx context.Context, p *common.Payload) (*common.Payload, error) {
	if readable(p) || sealed(p) {
		return p, nil
	}
	owner := ownerOf(p)
	keys, err := c.keys(ctx, owner, c.source.Keys)
	if err != nil {
		return nil, err
	}
	plain, err := proto.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("seal payload: %w", err)
	}
	data, err := keys.Seal(plain, bound(owner))
	if err != nil {
		return nil, fmt.Errorf("seal payload: %w", err)
	}
	return &common.Payload{
		Metadata: map[string][]byte{
			converter.MetadataEncoding: []byte(Encoding),
			metadataTenant:             []byte(owner.Tenant), metadataSubject: []byte(owner.Subject),
		},
		Data: data,
	}, nil
}

func (c *payloadCodec) open(ctx context.Context, p *common.Payload) (*common.Payload, error) {
	if !sealed(p) {
		return p, nil
	}
	owner, ok := namedOwner(p)
	if !ok {
		return nil, fmt.Errorf("open payload: its owner is malformed: %w", vault.ErrSealed)
	}
	keys, err := c.keys(ctx, owner, c.source.LookUpKeys)
	if err != nil {
		return nil, err
	}
	plain, err := keys.Open(p.GetData(), bound(owner))
	if err != nil {
		if keys, err = c.ask(ctx, owner, c.source.FreshKeys); err != nil {
			return nil, err
		}
		plain, err = keys.Open(p.GetData(), bound(owner))
	}
	if err != nil {
		return nil, fmt.Errorf("open payload of %s: %w", describe(owner), err)
	}
	var opened common.Payload
	if err := proto.Unmarshal(plain, &opened); err != nil {
		return nil, fmt.Errorf("open payload of %s: %w", describe(owner), vault.ErrSealed)
	}
	return &opened, nil
}

// keys returns the keys of an owner as the source has them. The deployment's
// serve from memory while the source is away.
func (c *payloadCodec) keys(ctx context.Context, owner vault.Owner, source keysFunc) (*vault.Keys, error) {
	if owner != (vault.Owner{}) {
		return c.ask(ctx, owner, source)
	}
	keys, err := source(ctx, owner)
	if kept := c.deployment.Load(); err != nil && kept != nil {
		return kept, nil
	}
	if err != nil {
		keys, err = c.ask(ctx, owner, source)
	}
	if err == nil {
		c.deployment.Store(keys)
	}
	return keys, err
}

// keysFunc is a method of a Source.
type keysFunc func(context.Context, vault.Owner) (*vault.Keys, error)

// ask asks the source until it answers or ctx ends.
func (c *payloadCodec) ask(ctx context.Context, owner vault.Owner, source keysFunc) (*vault.Keys, error) {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		keys, err := source(ctx, owner)
		if err == nil {
			return keys, nil
		}
		err = fmt.Errorf("keys of %s: %w", describe(owner), err)
		switch {
		case errors.Is(err, db.ErrKeysDestroyed):
			return nil, err
		case errors.Is(err, db.ErrNotFound):
			// Nothing was ever sealed under keys that nobody has made.
			return nil, fmt.Errorf("keys of %s: there are none: %w", describe(owner), vault.ErrSealed)
		case errors.Is(err, db.ErrNoVault):
			return nil, converter.NewWorkflowTaskFailureError(err)
		}
		select {
		case <-ctx.Done():
			return nil, converter.NewWorkflowTaskFailureError(err)
		case <-time.After(pause):
		}
	}
}

// unreadable reports whether a payload can be opened by nobody any more.
func unreadable(err error) bool {
	return errors.Is(err, vault.ErrSealed) || errors.Is(err, db.ErrKeysDestroyed)
}

func describe(owner vault.Owner) string {
	if owner == (vault.Owner{}) {
		return "the deployment"
	}
	return fmt.Sprintf("user %s of tenant %s", owner.Subject, owner.Tenant)
}

func encodingOf(p *common.Payload) string { return string(p.GetMetadata()[converter.MetadataEncoding]) }

func sealed(p *common.Payload) bool { return encodingOf(p) == Encoding }

// namedOwner is whose keys opened a sealed payload, as its metadata says.
func namedOwner(p *common.Payload) (vault.Owner, bool) {
	owner := vault.Owner{Tenant: string(p.GetMetadata()[metadataTenant]), Subject: string(p.GetMetadata()[metadataSubject])}
	return owner, owner == vault.Owner{} || agent.ValidID(owner.Tenant) && agent.ValidID(owner.Subject)
}
