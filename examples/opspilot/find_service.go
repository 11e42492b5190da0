package opspilot

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/examples/opspilot/services"
	"github.com/fairlead/fairlead/tool"
)

// maxServices bounds both lists of one answer.
const maxServices = 20

type findServiceArguments struct {
	Query       string `json:"query"`
	Environment string `json:"environment,omitempty"`
}

// foundServices is the answer of find_service.
type foundServices struct {
	Query       string `json:"query"`
	Environment string `json:"environment"`
	Total       int    `json:"total"`
	// Chosen is the service that was meant, if the answer is clear: the only one
	// of exactly that name, or the only match.
	Chosen   *foundService  `json:"chosen,omitempty"`
	Services []foundService `json:"services"`
	// Others are names of services that did not match, given only when none did.
	Others            []string `json:"others,omitempty"`
	UnreadableEntries int      `json:"unreadable_entries,omitempty"`
}

// foundService says which service it is and which life of it. Its address stays
// with the tools.
type foundService struct {
	ID          string    `json:"service_id"`
	Name        string    `json:"name"`
	Environment string    `json:"environment"`
	StartedAt   time.Time `json:"started_at"`
}

func newFindService(config Config, registry *services.Registry) (tool.Tool, error) {
	spec := tool.Spec{
		Name:    FindService,
		Version: "2",
		Description: "Find running services by name and get their service_id, which the other tools need. " +
			"Only services of the environments that you can see are visible. If it is clear which one was meant, it is in chosen; " +
			"the same name in two environments is not clear unless you name the environment. " +
			"If nothing matches, the names of other services are listed.",
		Parameters: json.RawMessage(`{
			"type": "object",
			"properties": {
				"query": {"type": "string", "minLength": 1, "maxLength": 200, "description": "Name of the service or a part of it, such as payment-api"},
				"environment": {"type": "string", "maxLength": 128, "description": "Look in this one alone; left out: in all that you can see"}
			},
			"required": ["query"],
			"additionalProperties": false
		}`),
		Risk: tool.Read, Fast: true, Source: "service-registry", Trust: tool.Authoritative,
		Facts: serviceFacts("/chosen"),
	}
	seen := sight{registry, config.Visible}
	built, err := tool.NewRead(spec, func(_ context.Context, call tool.Invocation, a findServiceArguments) (tool.Result, error) {
		own := call.Actor.Scope.Environment
		records, unreadable, err := seen.list(own, a.Environment)
		if err != nil {
			return tool.Result{}, &tool.Error{Code: agent.ToolUnavailable, Message: "the service registry could not be read", Transient: true, Err: err}
		}
		found := matchServices(records, a.Query)
		found.Query, found.Environment, found.UnreadableEntries = a.Query, cmp.Or(a.Environment, own), unreadable
		return noted(found, found.note())
	})
	return authorized{built, seen.environmentVisible}, err
}

// matchServices ranks the exact name first, then names that begin with the
// query, then those that contain it or are contained in it. Only letters and
// digits count, so that "Payment API" finds payment-api.
func matchServices(records []services.Record, query string) foundServices {
	type match struct {
		rank   int
		record services.Record
	}
	var matches []match
	result := foundServices{Services: []foundService{}}
	wanted := lettersAndDigits(query)
	for _, record := range records {
		name := lettersAndDigits(record.Name)
		switch {
		case wanted == "":
		case query == record.ID || name == wanted:
			matches = append(matches, match{0, record})
		case strings.HasPrefix(name, wanted):
			matches = append(matches, match{1, record})
		case strings.Contains(name, wanted) || strings.Contains(wanted, name):
			matches = append(matches, match{2, record})
		}
	}
	slices.SortStableFunc(matches, func(a, b match) int { return cmp.Compare(a.rank, b.rank) })
	result.Total = len(matches)
	if len(matches) == 1 || len(matches) > 1 && matches[0].rank == 0 && matches[1].rank > 0 {
		result.Chosen = new(described(matches[0].record))
	}
	for _, m := range matches[:min(len(matches), maxServices)] {
		result.Services = append(result.Services, described(m.record))
	}
	if len(matches) == 0 {
		for _, record := range records[:min(len(records), maxServices)] {
			result.Others = append(result.Others, record.Name)
		}
	}
	return result
}

func described(r services.Record) foundService {
	return foundService{r.ID, r.Name, r.Environment, r.StartedAt}
}

// note is the result in one line.
func (f foundServices) note() string {
	switch {
	case f.Chosen != nil:
		return "found " + f.Chosen.ID
	case f.Total == 0:
		return "no service matches"
	default:
		return fmt.Sprintf("%d services match, %s first; none was chosen", f.Total, f.Services[0].ID)
	}
}

func lettersAndDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, s)
}
