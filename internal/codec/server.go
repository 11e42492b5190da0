package codec

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.uber.org/zap"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/vault"
)

const (
	// maxBodyBytes bounds a request, maxPayloads the payloads in it.
	maxBodyBytes = 4 << 20
	maxPayloads  = 1000
)

// ServerOptions say what a codec server serves. All are required.
type ServerOptions struct {
	Source Source
	// Operators may use it, each within its tenant.
	Operators []config.Operator
	// UIURL is where the Web UI is found: the only origin whose pages may ask.
	UIURL string
	// Log is told who had what opened, without content.
	Log *zap.Logger
}

// server is the codec server.
type server struct {
	codec *payloadCodec
	door  *door
	// origin is that of the Web UI.
	origin string
	log    *zap.Logger
}

// NewHandler returns the codec server: POST /encode and /decode as Temporal's
// Web UI, CLI and remote data converters send them, and /login for browsers,
// which log out there as well.
func NewHandler(o ServerOptions) (http.Handler, error) {
	ui, err := url.Parse(o.UIURL)
	if err != nil || ui.Host == "" {
		return nil, errors.New("codec server: the URL of the Web UI is malformed")
	}
	s := &server{codec: newPayloadCodec(o.Source), door: newDoor(o.Operators), origin: originOf(ui), log: o.Log}
	mux := http.NewServeMux()
	mux.HandleFunc("/encode", s.fromUI(s.encode))
	mux.HandleFunc("/decode", s.fromUI(s.decode))
	// Nobody else's page may log a browser in or out.
	same := http.NewCrossOriginProtection()
	mux.Handle("/login", same.Handler(http.HandlerFunc(s.login)))
	mux.Handle("POST "+logoutPath, same.Handler(http.HandlerFunc(s.logout)))
	mux.Handle("GET /{$}", http.RedirectHandler("/login", http.StatusSeeOther))
	return mux, nil
}

// originOf is the origin of a URL's pages in the form in which browsers send it.
func originOf(u *url.URL) string {
	scheme, host := strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	switch port := u.Port(); {
	case port == "", scheme == "http" && port == "80", scheme == "https" && port == "443":
		host = strings.TrimSuffix(host, ":"+port)
	}
	return scheme + "://" + host
}

// fromUI answers pages of the Web UI and programs, and pages of nobody else.
func (s *server) fromUI(next func(http.ResponseWriter, *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Add("Vary", "Origin")
		switch r.Header.Get("Origin") {
		case "":
		case s.origin:
			h.Set("Access-Control-Allow-Origin", s.origin)
			h.Set("Access-Control-Allow-Credentials", "true")
		default:
			http.Error(w, "only pages of the configured Web UI (FAIRLEAD_UI_URL) may ask", http.StatusForbidden)
			return
		}
		switch r.Method {
		case http.MethodPost:
			next(w, r)
		case http.MethodOptions:
			h.Set("Access-Control-Allow-Methods", "POST, OPTIONS")
			h.Set("Access-Control-Allow-Headers", "Content-Type, Authorization, X-Namespace")
			h.Set("Access-Control-Max-Age", "600")
			w.WriteHeader(http.StatusNoContent)
		default:
			h.Set("Allow", "POST, OPTIONS")
			http.Error(w, "send payloads with POST", http.StatusMethodNotAllowed)
		}
	}
}

// encode seals all payloads or refuses the request: none goes back as it came.
func (s *server) encode(w http.ResponseWriter, r *http.Request) {
	s.convert(w, r, "encode", func(c *payloadCodec, operator config.Operator, payloads []*common.Payload, t *tally) ([]*common.Payload, error) {
		for _, p := range payloads {
			if owner := ownerOf(p); !readable(p) && !sealed(p) && !t.admit(operator, owner) {
				return nil, errAnotherTenant
			}
		}
		return c.Encode(payloads)
	})
}

// decode opens what this operator may read and what can be read at all. The rest
// goes back as it came: a page of the Web UI asks for all that it shows at once.
func (s *server) decode(w http.ResponseWriter, r *http.Request) {
	s.convert(w, r, "decode", func(c *payloadCodec, operator config.Operator, payloads []*common.Payload, t *tally) ([]*common.Payload, error) {
		return c.each(payloads, func(ctx context.Context, p *common.Payload) (*common.Payload, error) {
			if owner, _ := namedOwner(p); !sealed(p) || !t.admit(operator, owner) {
				return p, nil
			}
			opened, err := c.open(ctx, p)
			if err != nil && unreadable(err) {
				t.unreadable++
				return p, nil
			}
			return opened, err
		})
	})
}

// errAnotherTenant refuses a request for one of its payloads.
var errAnotherTenant = errors.New("another tenant's payload")

// tally is what a log says of a request.
type tally struct {
	// withKeys counts the payloads that need keys, unreadable those of them that
	// nobody can open, notTheirs those that are not the operator's to open.
	withKeys, unreadable, notTheirs int
	// tenants are those of withKeys, others those of notTheirs.
	tenants, others []string
}

// admit reports whether an operator may have an owner's payload converted.
func (t *tally) admit(operator config.Operator, owner vault.Owner) bool {
	if operator.Tenant != "" && owner.Tenant != operator.Tenant {
		t.notTheirs++
		t.others = append(t.others, tenantName(owner))
		return false
	}
	t.withKeys++
	t.tenants = append(t.tenants, tenantName(owner))
	return true
}

func (t *tally) fields() []zap.Field {
	sorted := func(names []string) []string {
		slices.Sort(names)
		return slices.Compact(names)
	}
	fields := []zap.Field{zap.Int("with_keys", t.withKeys), zap.Strings("tenants", sorted(t.tenants))}
	if t.unreadable > 0 {
		fields = append(fields, zap.Int("unreadable", t.unreadable))
	}
	if t.notTheirs > 0 {
		fields = append(fields, zap.Int("not_theirs", t.notTheirs), zap.Strings("other_tenants", sorted(t.others)))
	}
	return fields
}

// convert carries out one request with work.
func (s *server) convert(w http.ResponseWriter, r *http.Request, operation string,
	work func(*payloadCodec, config.Operator, []*common.Payload, *tally) ([]*common.Payload, error),
) {
	began := time.Now()
	log := s.log.With(zap.String("operation", operation))
	refuse := func(status int, code, text string) {
		log.Warn("payloads were refused", zap.Int("status", status), zap.String("reason", code), zap.Duration("took", time.Since(began)))
		http.Error(w, text, status)
	}
	operator, ok := s.door.admit(r, s.origin)
	if !ok {
		w.Header().Set("WWW-Authenticate", "Bearer")
		refuse(http.StatusUnauthorized, "unauthorized", "send a token of FAIRLEAD_CODEC_TOKENS as Authorization: Bearer; in a browser, log in at /login and let the Web UI include cross-origin credentials")
		return
	}
	log = log.With(zap.String("operator", operator.Name))
	payloads, status, text := read(w, r)
	if status != 0 {
		refuse(status, "malformed", text)
		return
	}
	var t tally
	converted, err := work(s.codec.with(r.Context()), operator, payloads, &t)
	log = log.With(zap.Int("payloads", len(payloads))).With(t.fields()...)
	var later *converter.WorkflowTaskFailureError
	switch {
	case err == nil:
	case errors.Is(err, errAnotherTenant):
		refuse(http.StatusForbidden, "another_tenant", "the token is for payloads of tenant "+operator.Tenant+" alone, and there is another one among these")
		return
	case errors.As(err, &later):
		log.Error("keys cannot be had", zap.Error(err), zap.NamedError("cause", vault.Cause(err)))
		refuse(http.StatusServiceUnavailable, "no_keys", "the keys cannot be had now; try again")
		return
	default:
		// Such as destroyed keys. The text names owners and no content.
		refuse(http.StatusBadRequest, "unreadable", err.Error())
		return
	}
	answer, err := protojson.Marshal(&common.Payloads{Payloads: converted})
	if err != nil {
		refuse(http.StatusInternalServerError, "internal", "the answer could not be written")
		return
	}
	log.Info("payloads were converted", zap.Duration("took", time.Since(began)))
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer)
}

// read reads the payloads of a request; a status that is not zero refuses it.
// The decoder's own text is not given back: it repeats what it read.
func read(w http.ResponseWriter, r *http.Request) (payloads []*common.Payload, status int, text string) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	var large *http.MaxBytesError
	var list common.Payloads
	switch {
	case errors.As(err, &large):
		return nil, http.StatusRequestEntityTooLarge, "the body has more than 4 MiB"
	case err != nil:
		return nil, http.StatusBadRequest, "the body could not be read"
	case protojson.Unmarshal(body, &list) != nil:
		return nil, http.StatusBadRequest, `the body is not {"payloads": [...]} in the JSON of Temporal's codec servers`
	case len(list.Payloads) > maxPayloads:
		return nil, http.StatusRequestEntityTooLarge, "the body has more than 1000 payloads"
	}
	return list.Payloads, 0, ""
}

// tenantName is what a log says of an owner. A name that nobody could have is
// not repeated.
func tenantName(owner vault.Owner) string {
	switch {
	case owner == vault.Owner{}:
		return "(deployment)"
	case !agent.ValidID(owner.Tenant):
		return "(malformed)"
	}
	return owner.Tenant
}
