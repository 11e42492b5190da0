package opspilot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/examples/opspilot/services"
	"github.com/fairlead/fairlead/examples/opspilot/tickets"
	"github.com/fairlead/fairlead/tool"
)

const defaultTicketTimeout = 5 * time.Second

type openTicketArguments struct {
	ServiceID string           `json:"service_id"`
	Title     string           `json:"title"`
	Details   string           `json:"details"`
	Severity  tickets.Severity `json:"severity"`
}

// openedTicket is the answer of open_ticket.
type openedTicket struct {
	TicketID  string    `json:"ticket_id"`
	ServiceID string    `json:"service_id"`
	OpenedAt  time.Time `json:"opened_at"`
}

// ticketOpener is what the parts of open_ticket share.
type ticketOpener struct {
	registry *services.Registry
	client   *http.Client
	url      string
}

func newOpenTicket(config Config, registry *services.Registry) (tool.Tool, error) {
	base, err := ticketURL(config.TicketURL)
	if err != nil {
		return nil, err
	}
	timeout := config.TicketTimeout
	spec := tool.Spec{
		Name:    OpenTicket,
		Version: "1",
		Description: "Propose to open a ticket about a service for the people who run it. A person sees the proposal and confirms or declines it; " +
			"only then is the ticket opened. Write into it what you saw and which results it comes from.",
		Parameters: json.RawMessage(`{
			"type": "object",
			"properties": {
				"service_id": {"type": "string", "minLength": 1, "maxLength": 200, "description": "From find_service"},
				"title": {"type": "string", "minLength": 1, "maxLength": 120, "description": "What is wrong, in a few words"},
				"details": {"type": "string", "minLength": 1, "maxLength": 2000, "description": "What was seen, with numbers and times, and what follows from it"},
				"severity": {"type": "string", "enum": ["low", "medium", "high", "critical"]}
			},
			"required": ["service_id", "title", "details", "severity"],
			"additionalProperties": false
		}`),
		Risk: tool.Write, Timeout: timeout + reportMargin, InFlight: noticeMargin,
		Source: "ticket-service", Trust: tool.Authoritative,
		Facts: []tool.Fact{{Key: "last_ticket", Pointer: "/ticket_id"}},
		Verbs: []string{"ticket", "工单", "开单", "提单"},
	}
	o := ticketOpener{registry, loopbackClient(timeout), base}
	return tool.NewWrite(spec, tool.WriteFuncs[openTicketArguments]{
		Prepare: o.prepare, Execute: o.execute, Find: o.find,
		Authorize: func(ctx context.Context, call tool.Invocation, _ openTicketArguments) error {
			return sight{registry: registry}.visible(ctx, call)
		},
	})
}

// ticketURL accepts what loopbackClient may be given.
func ticketURL(text string) (string, error) {
	parsed, err := url.Parse(text)
	if err == nil {
		var address netip.AddrPort
		address, err = netip.ParseAddrPort(parsed.Host)
		if err == nil && (!address.Addr().IsLoopback() || address.Port() == 0) {
			err = errors.New("not a loopback address")
		}
	}
	if err != nil || parsed.Scheme != "http" || parsed.User != nil || strings.Trim(parsed.Path, "/") != "" || parsed.RawQuery != "" || parsed.Fragment != "" {
		return "", errors.New("the URL of the ticket service must be like http://127.0.0.1:8070: http, a loopback address in numbers and a port")
	}
	return "http://" + parsed.Host, nil
}

func (o ticketOpener) prepare(_ context.Context, call tool.Invocation, a openTicketArguments) (tool.Plan, error) {
	record, err := sight{registry: o.registry}.lookUp(call, a.ServiceID)
	if err != nil {
		return tool.Plan{}, err
	}
	return tool.Plan{
		Resource: "ticket-queue/" + record.Environment,
		Summary:  fmt.Sprintf("Open a ticket of severity %s about the service %s in the environment %s, in the name of %s, with the title and details below.", a.Severity, record.Name, record.Environment, call.Actor.Scope.User),
	}, nil
}

func (o ticketOpener) request(call tool.Invocation, a openTicketArguments) tickets.Request {
	return tickets.Request{
		Environment: call.Actor.Scope.Environment, ServiceID: a.ServiceID,
		Title: a.Title, Details: a.Details, Severity: a.Severity, Reporter: call.Actor.Scope.User,
	}
}

func (o ticketOpener) execute(ctx context.Context, call tool.Invocation, a openTicketArguments) (tool.Result, error) {
	request := o.request(call, a)
	body, err := json.Marshal(request)
	if err != nil {
		return tool.Result{}, &tool.Error{Code: agent.ToolFailed, Message: "the ticket could not be written", Err: err}
	}
	got, err := send(ctx, o.client, exchange{
		method: http.MethodPost, url: o.url + tickets.TicketsPath, body: body,
		header: map[string]string{tickets.KeyHeader: call.Key, "Content-Type": "application/json"},
	})
	if errors.Is(err, errNotSent) {
		return tool.Result{}, &tool.Error{Code: agent.ToolUnavailable, Message: "the ticket service cannot be reached; no ticket was opened", Transient: true, Err: err}
	}
	if err != nil {
		return tool.Result{}, fmt.Errorf("open ticket: %w", err)
	}
	switch code := got.code(); {
	case got.status == http.StatusCreated, got.status == http.StatusOK:
		return opened(request, call, got)
	case got.status == http.StatusServiceUnavailable && code == tickets.CodeNotAccepted:
		return tool.Result{}, &tool.Error{Code: agent.ToolUnavailable, Message: "the ticket service accepts nothing now; no ticket was opened", Transient: true}
	case got.status == http.StatusBadRequest && code == tickets.CodeMalformed:
		return tool.Result{}, &tool.Error{Code: agent.ToolFailed, Message: "the ticket service did not understand the request; no ticket was opened"}
	default:
		return tool.Result{}, fmt.Errorf("open ticket: %w", got.unexpected())
	}
}

func (o ticketOpener) find(ctx context.Context, call tool.Invocation, a openTicketArguments) (tool.Finding, error) {
	got, err := send(ctx, o.client, exchange{method: http.MethodGet, url: o.url + tickets.ByKeyPath + call.Key})
	if err != nil {
		return tool.Finding{}, fmt.Errorf("look up the ticket: %w", err)
	}
	switch {
	case got.status == http.StatusOK:
		result, err := opened(o.request(call, a), call, got)
		if err != nil {
			return tool.Finding{}, err
		}
		return tool.Finding{State: tool.FindPerformed, Result: result}, nil
	case got.status == http.StatusNotFound && got.code() == tickets.CodeUnknownKey:
		return tool.Finding{State: tool.FindAbsent}, nil
	default:
		return tool.Finding{}, fmt.Errorf("look up the ticket: %w", got.unexpected())
	}
}

// opened reads a ticket. One that belongs to another call says nothing about
// this one.
func opened(request tickets.Request, call tool.Invocation, got reply) (tool.Result, error) {
	var ticket tickets.Ticket
	if err := json.Unmarshal(got.body, &ticket); err != nil {
		return tool.Result{}, errors.New("read the ticket: it is not valid JSON")
	}
	if ticket.Request != request || ticket.Key != call.Key || ticket.ID == "" || ticket.OpenedAt.IsZero() {
		return tool.Result{}, errors.New("read the ticket: it is not the one that was asked for")
	}
	return noted(openedTicket{ticket.ID, ticket.ServiceID, ticket.OpenedAt}, "opened "+ticket.ID+" about "+ticket.ServiceID)
}
