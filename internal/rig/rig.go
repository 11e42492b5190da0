// Package rig assembles a worker from real parts and a model of the caller's
// choice. Tests and benchmarks use it where package worker/host would read
// settings; it may import everything that a worker may.
package rig

import (
	"fmt"
	"io/fs"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"

	"github.com/fairlead/fairlead/activities"
	"github.com/fairlead/fairlead/agent/definition"
	"github.com/fairlead/fairlead/approval"
	"github.com/fairlead/fairlead/db"
	"github.com/fairlead/fairlead/internal/authz"
	"github.com/fairlead/fairlead/model"
	"github.com/fairlead/fairlead/tool"
	"github.com/fairlead/fairlead/worker/host"
)

// Config says what the worker is made of. DB, Model and Definitions are
// required.
type Config struct {
	DB *db.DB
	// Model answers for the catalogue's provider "scripted".
	Model       model.Model
	Entries     []model.Entry
	Tools       []tool.Tool
	Definitions []definition.Definition
	Limits      activities.Limits
	// Grace is how long a stopping worker lets activities finish.
	Grace time.Duration
	// Policies hold *.cedar files and entities.json; nil means the built-in ones.
	Policies fs.FS
	// ApprovalKeys are the public keys whose approvals are believed.
	ApprovalKeys []string
	// Embedders compute the vectors of memories, the first one is current; none
	// is the offline one.
	Embedders []model.Embedder
	// Memory, if set, wraps where memories live.
	Memory func(activities.Memory) activities.Memory
	// Now is the clock of the activities; nil is time.Now.
	Now func() time.Time
	// Interceptors wrap activities and workflows of a Poller.
	Interceptors []interceptor.WorkerInterceptor
}

// Activities returns the activities of c.
func Activities(c Config) (*activities.Runs, error) {
	catalogue := model.DefaultCatalogue()
	for _, entry := range c.Entries {
		var err error
		if catalogue, err = catalogue.With(entry); err != nil {
			return nil, err
		}
	}
	store, memory := activities.PostgreSQL(c.DB), activities.PostgreSQLMemory(c.DB)
	if c.Memory != nil {
		memory = c.Memory(memory)
	}
	registry, err := tool.NewRegistry(append([]tool.Tool{
		tool.NewFetchResult(activities.Results{Store: store}),
		activities.NewRemember(activities.Remembering{Store: store, Memory: memory}),
	}, c.Tools...)...)
	if err != nil {
		return nil, fmt.Errorf("register tools: %w", err)
	}
	definitions, err := definition.NewSet(c.Definitions...)
	if err != nil {
		return nil, fmt.Errorf("register definitions: %w", err)
	}
	policies := authz.Default()
	if c.Policies != nil {
		if policies, err = authz.Load(c.Policies); err != nil {
			return nil, fmt.Errorf("load policies: %w", err)
		}
	}
	approvals, err := approval.NewVerifier(c.ApprovalKeys...)
	if err != nil {
		return nil, fmt.Errorf("read approval keys: %w", err)
	}
	return activities.New(activities.Config{
		Store: store, Memory: memory, Embedders: c.Embedders, Policies: policies, Approvals: approvals, Now: c.Now, Models: model.NewResolver(catalogue, map[string]model.Model{"scripted": c.Model}),
		Tools: registry, Definitions: definitions, Limits: c.Limits, ShutdownGrace: c.Grace,
	})
}

// Poller returns a worker on taskQueue that is not yet started.
func Poller(c Config, temporal client.Client, taskQueue string) (*host.Poller, error) {
	runs, err := Activities(c)
	if err != nil {
		return nil, err
	}
	return host.NewPoller(temporal, runs, host.PollerOptions{TaskQueue: taskQueue, Grace: c.Grace, Interceptors: c.Interceptors}), nil
}
