package opspilot_test

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/examples/opspilot"
	"github.com/fairlead/fairlead/examples/opspilot/tickets"
	"github.com/fairlead/fairlead/tool"
	"github.com/fairlead/fairlead/tool/tooltest"
)

const ticketArguments = `{"service_id":"payment-api.production","title":"Connections leak","details":"3 of 3 connections","severity":"high"}`

// desk is a ward with a ticket service.
func desk(t *testing.T) (ward, *tickets.Service) {
	t.Helper()
	service, err := tickets.Open("")
	require.NoError(t, err)
	server := httptest.NewServer(service)
	t.Cleanup(func() {
		require.NoError(t, service.Close())
		server.Close()
	})
	w := setupWith(t, opspilot.Config{TicketURL: server.URL, TicketTimeout: 300 * time.Millisecond})
	w.put(t, "payment-api", "production", nil)
	return w, service
}

func TestOpenTicketExistsWithATicketServiceOnly(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{opspilot.OpenTicket}, setup(t).registry.Missing([]string{opspilot.OpenTicket}))
	for _, url := range []string{
		"127.0.0.1:80", "https://127.0.0.1:80", "http://127.0.0.1", "http://127.0.0.1:0", "http://localhost:80", "http://192.0.2.1:80",
		"http://127.0.0.1:80/v1", "http://user@127.0.0.1:80", "http://127.0.0.1:80?a=b", "http://[::1%25lo]:80/x", "::",
	} {
		_, err := opspilot.Tools(opspilot.Config{RegistryDir: t.TempDir(), TicketURL: url})
		require.ErrorContains(t, err, "URL of the ticket service", url)
	}
	for _, url := range []string{"http://127.0.0.1:80", "http://127.0.0.1:80/", "http://[::1]:80"} {
		_, err := opspilot.Tools(opspilot.Config{RegistryDir: t.TempDir(), TicketURL: url})
		require.NoError(t, err, url)
	}
}

func TestTicketPlan(t *testing.T) {
	t.Parallel()
	w, service := desk(t)
	plan, _ := w.write(t, "production", opspilot.OpenTicket, ticketArguments, key("a"))
	require.Equal(t, tool.Plan{
		Resource: "ticket-queue/production",
		Summary:  "Open a ticket of severity high about the service payment-api in the environment production, in the name of ada, with the title and details below.",
	}, plan)
	require.Empty(t, service.Tickets())
	require.Equal(t, agent.ToolForbidden, w.prepareFails(t, "staging", opspilot.OpenTicket, ticketArguments).Code)
	require.Equal(t, agent.ToolInvalidArguments,
		w.prepareFails(t, "production", opspilot.OpenTicket, `{"service_id":"payment-api.production","title":"a","details":"b","severity":"urgent"}`).Code)
}

func TestOpenTicketConforms(t *testing.T) {
	t.Parallel()
	w, service := desk(t)
	sample := tool.Invocation{Actor: actor("production"), Arguments: json.RawMessage(ticketArguments)}
	tooltest.Check(t, w.tool(t, opspilot.OpenTicket), sample)
	tooltest.CheckWrite(t, w.tool(t, opspilot.OpenTicket), sample, func() int { return len(service.Tickets()) })
}

// Whatever goes wrong, the tool says what it knows, the look-up tells the rest,
// and sending again with the same key opens no second ticket.
func TestOpenTicketUnderFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault   tickets.Fault
		sent    string         // "", "nothing" or "unknown"
		find    tool.FindState // after that
		effects int            // after that
	}{
		"none":                    {tickets.FaultNone, "", tool.FindPerformed, 1},
		"refused":                 {tickets.FaultRefuse, "nothing", tool.FindAbsent, 0},
		"hangs before the work":   {tickets.FaultHangBefore, "unknown", tool.FindAbsent, 0},
		"hangs after the work":    {tickets.FaultHangAfter, "unknown", tool.FindPerformed, 1},
		"cut off before the work": {tickets.FaultDropBefore, "unknown", tool.FindAbsent, 0},
		"cut off after the work":  {tickets.FaultDropAfter, "unknown", tool.FindPerformed, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, service := desk(t)
			_, call := w.write(t, "production", opspilot.OpenTicket, ticketArguments, key("a"))
			service.FailOpens(c.fault)
			result, err := w.registry.Commit(t.Context(), call)
			var shown *tool.Error
			switch c.sent {
			case "":
				require.NoError(t, err)
				require.Equal(t, tickets.Request{
					Environment: "production", ServiceID: "payment-api.production", Title: "Connections leak", Details: "3 of 3 connections",
					Severity: tickets.High, Reporter: "ada",
				}, service.Tickets()[0].Request)
				var got struct {
					TicketID  string    `json:"ticket_id"`
					ServiceID string    `json:"service_id"`
					OpenedAt  time.Time `json:"opened_at"`
				}
				require.NoError(t, json.Unmarshal(result.Content, &got))
				require.Equal(t, "T-1", got.TicketID)
				require.Equal(t, service.Tickets()[0].OpenedAt, got.OpenedAt)
			case "nothing":
				require.True(t, errors.As(err, &shown), "%v", err)
				require.Equal(t, agent.ToolUnavailable, shown.Code)
			case "unknown":
				require.ErrorIs(t, err, tool.ErrOutcomeUnknown)
			}
			require.Equal(t, c.effects, service.Effects()[key("a")])

			service.FailLookUps(tickets.FaultRefuse, tickets.FaultHangBefore, tickets.FaultDropBefore)
			for range 3 {
				_, err = w.registry.Find(t.Context(), call)
				require.ErrorIs(t, err, tool.ErrOutcomeUnknown)
			}
			finding, err := w.registry.Find(t.Context(), call)
			require.NoError(t, err)
			require.Equal(t, c.find, finding.State)

			again, err := w.registry.Commit(t.Context(), call)
			require.NoError(t, err)
			require.Equal(t, map[string]int{key("a"): 1}, service.Effects())
			if c.find == tool.FindPerformed {
				require.Equal(t, again, finding.Result)
			}
		})
	}
}

func TestOpenTicketUnderAKeyOfAnotherCall(t *testing.T) {
	t.Parallel()
	w, service := desk(t)
	_, call := w.write(t, "production", opspilot.OpenTicket, ticketArguments, key("a"))
	_, err := w.registry.Commit(t.Context(), call)
	require.NoError(t, err)
	_, other := w.write(t, "production", opspilot.OpenTicket, `{"service_id":"payment-api.production","title":"Other","details":"x","severity":"low"}`, key("a"))
	_, err = w.registry.Commit(t.Context(), other)
	require.ErrorIs(t, err, tool.ErrOutcomeUnknown)
	_, err = w.registry.Find(t.Context(), other)
	require.ErrorIs(t, err, tool.ErrOutcomeUnknown)
	require.Equal(t, map[string]int{key("a"): 1}, service.Effects())
}

func TestOpenTicketWithoutATicketServiceAnswering(t *testing.T) {
	t.Parallel()
	w := setupWith(t, opspilot.Config{TicketURL: "http://127.0.0.1:1"})
	w.put(t, "payment-api", "production", nil)
	_, call := w.write(t, "production", opspilot.OpenTicket, ticketArguments, key("a"))
	_, err := w.registry.Commit(t.Context(), call)
	var shown *tool.Error
	require.True(t, errors.As(err, &shown), "%v", err)
	require.Equal(t, agent.ToolUnavailable, shown.Code)
	require.NotContains(t, string(tool.ErrorEnvelope(shown)), "127.0.0.1")
	_, err = w.registry.Find(t.Context(), call)
	require.ErrorIs(t, err, tool.ErrOutcomeUnknown)
}
