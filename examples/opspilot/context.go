package opspilot

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/model"
)

// knownContext is what the application tells the model beside the user's words,
// in a message of its own: what is settled in the conversation and what the user
// forbade. It is data like a tool result, and says nothing that the user wishes
// now.
type knownContext struct {
	Facts        []knownFact   `json:"facts"`
	Prohibitions []prohibition `json:"prohibitions"`
	Memory       struct {
		Items []remembered `json:"items"`
	} `json:"memory"`
}

type knownFact struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// prohibition is something that the user forbade, in the user's words.
type prohibition struct {
	Text   string   `json:"text"`
	Tools  []string `json:"tools"`
	Effect string   `json:"effect"`
}

// asks says that the user does not forbid it and wants to be asked, which a
// confirmation does.
func (p prohibition) asks() bool { return p.Effect == "needs the user's confirmation" }

// contextIn reads a message of the application; ok is false for the user's own.
// The key is the application's as it is: as a field of a struct it would match
// in any case.
func contextIn(message model.Message) (known knownContext, ok bool) {
	var envelope map[string]json.RawMessage
	if message.Role != model.RoleUser || json.Unmarshal([]byte(message.Text), &envelope) != nil {
		return known, false
	}
	var context *knownContext
	if json.Unmarshal(envelope["fairlead_context"], &context) != nil || context == nil {
		return known, false
	}
	return *context, true
}

// fact is the settled value of a key, "" if there is none.
func (k knownContext) fact(key string) string {
	i := slices.IndexFunc(k.Facts, func(f knownFact) bool { return f.Key == key })
	if i < 0 {
		return ""
	}
	return k.Facts[i].Value
}

// service is the one that the conversation is about, if that is settled.
func (k knownContext) service() (service foundService, known bool) {
	service = foundService{ID: k.fact(factService), Name: k.fact(factServiceName), Environment: k.fact(factEnvironment)}
	return service, service.ID != "" && service.Name != ""
}

// forbids returns the prohibition that covers a tool: one that forbids it before
// one that wants to be asked.
func (k knownContext) forbids(name string) (found prohibition, covered bool) {
	for _, p := range k.Prohibitions {
		if slices.Contains(p.Tools, name) && (!covered || found.asks() && !p.asks()) {
			found, covered = p, true
		}
	}
	return found, covered
}

// remembered is one memory that the application recalled. It is data, and may be
// out of date.
type remembered struct {
	ID   string `json:"id"`
	Text string `json:"text"`
}

// defaultEnvironmentKey is the key of the memory policy under which the
// environment is remembered that the user means without saying so.
const defaultEnvironmentKey = "preference.default_environment"

// defaultEnvironment is what is remembered under that key; ok is false if nothing
// is, or nothing that is an environment.
func (k knownContext) defaultEnvironment() (environment string, from remembered, ok bool) {
	for _, r := range k.Memory.Items {
		if value, found := strings.CutPrefix(r.Text, defaultEnvironmentKey+":"); found {
			if environment = environmentIn(value); environment != "" {
				return environment, r, true
			}
		}
	}
	return "", remembered{}, false
}
