package codec

import (
	"bytes"
	"encoding/json"
	"errors"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/internal/vault"
)

// readable reports whether a payload stays as it is: nothing at all, a bare
// string, or a workflow's description of itself.
func readable(p *common.Payload) bool {
	switch encodingOf(p) {
	case encodingNil:
		return len(p.GetData()) == 0
	case encodingJSON:
		data := bytes.TrimLeft(p.GetData(), " \t\r\n")
		return len(data) == 0 || data[0] == '"'
	}
	return len(p.GetData()) == 0 || string(p.GetMetadata()[converter.MetadataMessageType]) == descriptionType
}

// subject is how agent.Scope and agent.RunRequest name an owner.
type subject struct {
	Tenant string `json:"tenant"`
	User   string `json:"user"`
}

// lesson reports whether a payload is an agent.LearnInput, which names a run and no
// content. ReconcileMemory starts lessons of many users, and has to be replayed
// after the keys of one of them are gone.
func lesson(p *common.Payload) bool {
	var in agent.LearnInput
	read := json.NewDecoder(bytes.NewReader(p.GetData()))
	read.DisallowUnknownFields()
	return read.Decode(&in) == nil && !read.More() && in.Run.RunID != "" && in.DefinitionDigest != "" && in.Room.Scope == in.Run.Scope
}

type scoped struct {
	Scope subject `json:"scope"`
}

// ownerOf finds the subject that a payload names in one of the ways of package
// agent. Without one it is the deployment.
func ownerOf(p *common.Payload) vault.Owner {
	if encodingOf(p) != encodingJSON {
		return vault.Owner{}
	}
	var named struct {
		subject
		Scope   subject `json:"scope"`
		Run     scoped  `json:"run"`
		Ref     scoped  `json:"ref"`
		Request subject `json:"request"`
		// A proposed memory. What only names a room holds no content, and is to be
		// read after its user's keys are gone.
		Room      scoped          `json:"room"`
		Candidate json.RawMessage `json:"candidate"`
	}
	// A field of another type leaves the others as they are.
	var other *json.UnmarshalTypeError
	if err := json.Unmarshal(p.GetData(), &named); err != nil && !errors.As(err, &other) {
		return vault.Owner{}
	}
	if len(named.Candidate) == 0 || string(named.Candidate) == "null" {
		named.Room = scoped{}
	}
	if lesson(p) {
		return vault.Owner{}
	}
	for _, s := range []subject{named.subject, named.Scope, named.Run.Scope, named.Ref.Scope, named.Request, named.Room.Scope} {
		if agent.ValidID(s.Tenant) && agent.ValidID(s.User) {
			return vault.Owner{Tenant: s.Tenant, Subject: s.User}
		}
	}
	return vault.Owner{}
}
