package codec

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	_ "embed"
	"html/template"
	"net/http"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/fairlead/fairlead/internal/config"
)

const (
	cookieName = "fairlead-codec"
	// sessionTime is how long a browser stays logged in.
	sessionTime = 8 * time.Hour
	// maxSessions bounds what is remembered; the oldest are forgotten first.
	maxSessions = 1000
	// logoutPath lies under one that the cookie is sent to.
	logoutPath = "/decode/logout"
)

// cookiePaths are where browsers send the cookie. It knows no ports: other
// servers of this host get it only if they are asked for these paths.
var cookiePaths = []string{"/decode", "/encode"}

// door knows who may come in: operators by their tokens, and browsers that
// logged in with one. Only hashes are kept.
type door struct {
	operators []config.Operator
	tokens    [][sha256.Size]byte

	mu       sync.Mutex
	sessions map[[sha256.Size]byte]session
}

type session struct {
	operator config.Operator
	until    time.Time
}

func newDoor(operators []config.Operator) *door {
	d := &door{sessions: map[[sha256.Size]byte]session{}}
	for _, o := range operators {
		d.tokens = append(d.tokens, sha256.Sum256([]byte(o.Token.Value())))
		o.Token = ""
		d.operators = append(d.operators, o)
	}
	return d
}

// admit finds who sent a request. A token counts alone; a cookie counts for
// requests of the Web UI's pages only.
func (d *door) admit(r *http.Request, origin string) (config.Operator, bool) {
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, token, _ := strings.Cut(header, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return config.Operator{}, false
		}
		return d.byToken(strings.TrimSpace(token))
	}
	cookie, err := r.Cookie(cookieName)
	if err != nil || r.Header.Get("Origin") != origin {
		return config.Operator{}, false
	}
	key := sha256.Sum256([]byte(cookie.Value))
	d.mu.Lock()
	defer d.mu.Unlock()
	s, ok := d.sessions[key]
	if !ok || time.Now().After(s.until) {
		return config.Operator{}, false
	}
	return s.operator, true
}

// byToken compares with every token, whichever fits, in constant time.
func (d *door) byToken(token string) (found config.Operator, ok bool) {
	sum := sha256.Sum256([]byte(token))
	for i := range d.tokens {
		if subtle.ConstantTimeCompare(sum[:], d.tokens[i][:]) == 1 {
			found, ok = d.operators[i], true
		}
	}
	return found, ok
}

// open begins a session and returns its secret.
func (d *door) open(operator config.Operator) string {
	secret := rand.Text()
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	oldest, first := [sha256.Size]byte{}, now.Add(sessionTime)
	for key, s := range d.sessions {
		switch {
		case now.After(s.until):
			delete(d.sessions, key)
		case s.until.Before(first):
			oldest, first = key, s.until
		}
	}
	if len(d.sessions) >= maxSessions {
		delete(d.sessions, oldest)
	}
	d.sessions[sha256.Sum256([]byte(secret))] = session{operator, now.Add(sessionTime)}
	return secret
}

// close ends the session of a request and returns whose it was.
func (d *door) close(r *http.Request) (config.Operator, bool) {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return config.Operator{}, false
	}
	key := sha256.Sum256([]byte(cookie.Value))
	d.mu.Lock()
	defer d.mu.Unlock()
	s, ok := d.sessions[key]
	delete(d.sessions, key)
	return s.operator, ok
}

//go:embed login.html
var loginText string

var loginPage = template.Must(template.New("login").Parse(loginText))

// login gives a browser a cookie for a token, so that the Web UI can decode.
func (s *server) login(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("Content-Type", "text/html; charset=utf-8")
	page := struct {
		Operator, UI, Logout string
		Refused              bool
		Hours                int
	}{UI: s.origin, Logout: logoutPath, Hours: int(sessionTime.Hours())}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodPost:
		r.Body = http.MaxBytesReader(w, r.Body, 8<<10)
		operator, ok := s.door.byToken(strings.TrimSpace(r.PostFormValue("token")))
		if !ok {
			s.log.Warn("a login was refused")
			page.Refused = true
			w.WriteHeader(http.StatusUnauthorized)
			break
		}
		s.log.Info("logged in", zap.String("operator", operator.Name))
		secret := s.door.open(operator)
		setCookies(w, r, secret, int(sessionTime.Seconds()))
		page.Operator = operator.Name
	default:
		h.Set("Allow", "GET, POST")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	if err := loginPage.Execute(w, page); err != nil {
		s.log.Error("the login page could not be written", zap.Error(err))
	}
}

// logout ends a browser's session, here and in the browser.
func (s *server) logout(w http.ResponseWriter, r *http.Request) {
	if operator, ok := s.door.close(r); ok {
		s.log.Info("logged out", zap.String("operator", operator.Name))
	}
	setCookies(w, r, "", -1)
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

func setCookies(w http.ResponseWriter, r *http.Request, secret string, maxAge int) {
	secure := r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https"
	for _, path := range cookiePaths {
		http.SetCookie(w, &http.Cookie{
			Name: cookieName, Value: secret, Path: path, MaxAge: maxAge,
			HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: secure,
		})
	}
}
