package access

import (
	"context"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"muster/internal/addressfilter"
	"muster/internal/clip"
)

const (
	maxToken     = 16 << 10 // bytes of a token
	maxKeySet    = 1 << 20  // bytes of a key set
	maxSetKeys   = 200
	minRSA       = 2048 // bits
	fetchTime    = 5 * time.Second
	renewEvery   = 5 * time.Minute  // refresh interval of keys
	retryEvery   = time.Minute      // retry interval after a failed refresh
	unknownEvery = 10 * time.Second // minimum interval between refreshes because of unknown keys
	keepSet      = 24 * time.Hour   // lifetime of keys without a refresh
)

// algorithms are the accepted signature algorithms. All use public keys, because anyone who can verify a shared secret can issue
// tokens.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// TokensConfig are the settings of the accepted tokens.
type TokensConfig struct {
	JWKS      string        `yaml:"jwks"`                       // https URL, http URL on loopback, or path of a file with the public keys; "": none are accepted
	Issuer    string        `yaml:"issuer"`                     // iss of the tokens
	Audience  string        `yaml:"audience"`                   // required member of aud
	RoleClaim string        `yaml:"role_claim" rule:"required"` // claim with the role, a string or a list of strings
	Leeway    time.Duration `yaml:"leeway" range:"0s 10m"`      // maximum clock skew
}

// Enabled reports whether tokens are accepted.
func (c TokensConfig) Enabled() bool { return c.JWKS != "" }

// Check returns an error if required settings are missing.
func (c TokensConfig) Check() error {
	if c.Enabled() && (c.Issuer == "" || c.Audience == "") {
		return errors.New("api.jwt: issuer and audience are required with jwks, to reject tokens for other services")
	}
	if !c.Enabled() && (c.Issuer != "" || c.Audience != "") {
		return errors.New("api.jwt: jwks is required: the URL or file with the public keys of the issuer")
	}
	return nil
}

// Tokens verifies JSON Web Tokens (RFC 7519) with the public keys of an identity provider. It is safe for concurrent use.
type Tokens struct {
	cfg    TokensConfig
	logger *slog.Logger
	now    func() time.Time
	load   func(context.Context) ([]byte, error)

	mu     sync.Mutex // guards the fields below
	set    []jose.JSONWebKey
	read   time.Time     // time of the last successful read; zero: never
	tried  time.Time     // time of the last attempt
	latest chan struct{} // closed at the end of the current read; nil if there is none
}

// NewTokens returns Tokens. It reads a file immediately, and a URL with the first token.
func NewTokens(cfg TokensConfig, logger *slog.Logger) (*Tokens, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	t := &Tokens{cfg: cfg, logger: logger, now: time.Now}
	if !strings.Contains(cfg.JWKS, "://") {
		t.load = func(context.Context) ([]byte, error) { return readKeySet(cfg.JWKS) }
		data, err := readKeySet(cfg.JWKS)
		if err == nil {
			t.set, err = parseKeySet(data)
		}
		if err != nil {
			return nil, fmt.Errorf("read api.jwt.jwks: %w", err)
		}
		t.read, t.tried = t.now(), t.now()
		return t, nil
	}
	if err := CheckKeySetURL(cfg.JWKS); err != nil {
		return nil, fmt.Errorf("api.jwt.jwks: %w", err)
	}
	client := &http.Client{Timeout: fetchTime, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.load = func(ctx context.Context) ([]byte, error) { return fetchKeySet(ctx, client, cfg.JWKS) }
	return t, nil
}

// CheckKeySetURL validates the URL of a key set. It must be authenticated, because anyone who can modify the keys in transit can
// issue tokens.
func CheckKeySetURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "":
		return errors.New("invalid URL: use https://host/path or the path of a file")
	case u.User != nil:
		return errors.New("invalid URL: remove user and password")
	case u.Scheme != "https" && (u.Scheme != "http" || !addressfilter.IsLoopback(u.Hostname())):
		return errors.New("invalid URL: use https, because keys could be modified in transit, or the path of a file")
	}
	return nil
}

func readKeySet(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return limited(f)
}

func fetchKeySet(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/jwk-set+json, application/json")
	resp, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("unexpected status %s; redirects are not followed", resp.Status)
	}
	return limited(resp.Body)
}

func limited(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxKeySet+1))
	if err == nil && len(data) > maxKeySet {
		err = fmt.Errorf("the key set is larger than %d bytes", maxKeySet)
	}
	return data, err
}

// parseKeySet returns the public signature keys of a JSON Web Key Set (RFC 7517). It ignores other keys, as the RFC recommends.
func parseKeySet(data []byte) ([]jose.JSONWebKey, error) {
	var raw struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, fmt.Errorf("invalid key set: %w", err)
	}
	var set []jose.JSONWebKey
	for _, data := range raw.Keys[:min(len(raw.Keys), maxSetKeys)] {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(data) != nil || key.Use != "" && key.Use != "sig" {
			continue
		}
		public := key.Public() // invalid for a shared secret
		if small, ok := public.Key.(*rsa.PublicKey); ok && small.N.BitLen() < minRSA || !public.Valid() {
			continue
		}
		set = append(set, public)
	}
	if len(set) == 0 {
		return nil, errors.New("the key set contains no public signature key")
	}
	return set, nil
}

// verify returns the caller with a token, or a *Denied. Other errors mean that the keys are unavailable.
func (t *Tokens) verify(ctx context.Context, text string) (Caller, error) {
	if len(text) > maxToken {
		return Caller{}, &Denied{fmt.Sprintf("the token has more than %d bytes", maxToken)}
	}
	token, err := jwt.ParseSigned(text, algorithms)
	if err != nil || len(token.Headers) != 1 {
		return Caller{}, &Denied{"the token is malformed, or its signature algorithm is not accepted"}
	}
	if !isAccessToken(token.Headers[0]) {
		return Caller{}, &Denied{"the token is not an access token: its typ is neither JWT nor at+jwt"}
	}
	key, err := t.key(ctx, token.Headers[0])
	if err != nil {
		return Caller{}, err
	}
	var claims jwt.Claims
	var all map[string]any
	if err := token.Claims(key.Key, &claims, &all); err != nil {
		return Caller{}, &Denied{"the signature of the token is invalid"}
	}
	return t.caller(claims, all)
}

// isAccessToken reports whether the typ of a token is absent, JWT or at+jwt (RFC 9068).
func isAccessToken(header jose.Header) bool {
	typ, ok := header.ExtraHeaders[jose.HeaderType]
	if !ok {
		return true
	}
	text, _ := typ.(string)
	text = strings.TrimPrefix(strings.ToLower(text), "application/")
	return text == "jwt" || text == "at+jwt"
}

// caller validates the claims of a token with a valid signature.
func (t *Tokens) caller(claims jwt.Claims, all map[string]any) (Caller, error) {
	if claims.Expiry == nil {
		return Caller{}, &Denied{"the token has no exp claim: tokens must expire"}
	}
	expected := jwt.Expected{Issuer: t.cfg.Issuer, AnyAudience: jwt.Audience{t.cfg.Audience}, Time: t.now()}
	switch err := claims.ValidateWithLeeway(expected, t.cfg.Leeway); {
	case errors.Is(err, jwt.ErrExpired):
		return Caller{}, &Denied{"the token is expired"}
	case errors.Is(err, jwt.ErrInvalidIssuer):
		return Caller{}, &Denied{"the token has another issuer"}
	case errors.Is(err, jwt.ErrInvalidAudience):
		return Caller{}, &Denied{"the token has another audience"}
	case err != nil:
		return Caller{}, &Denied{"the token is not valid yet"}
	case claims.Subject == "":
		return Caller{}, &Denied{"the token has no sub claim"}
	}
	role, ok := roleOf(all[t.cfg.RoleClaim])
	if !ok {
		return Caller{}, &Denied{fmt.Sprintf("the claim %s of the token contains none of the roles %s", t.cfg.RoleClaim, names(Roles))}
	}
	return Caller{Name: clip.Line(claims.Subject, 200), ID: tokenID + clip.Line(claims.ID, 200), Role: role}, nil
}

// tokenID is the prefix of the ID of a caller with a token. Key IDs do not have it.
const tokenID = "jwt:"

// roleOf returns the role in a claim: a string, or the most privileged role in a list.
func roleOf(claim any) (Role, bool) {
	if text, ok := claim.(string); ok {
		role, err := ParseRole(text)
		return role, err == nil
	}
	list, _ := claim.([]any)
	for _, role := range []Role{Admin, Operator, Viewer, Agent} {
		for _, member := range list {
			if member == string(role) {
				return role, true
			}
		}
	}
	return "", false
}

// key returns the public key for the header of a token. It refreshes the keys if they are old or do not contain the key. If a
// refresh fails, the last keys remain valid for a day.
func (t *Tokens) key(ctx context.Context, header jose.Header) (jose.JSONWebKey, error) {
	key, found := t.find(header)
	if err := t.renew(ctx, found); err != nil {
		return key, err
	}
	if key, found = t.find(header); !found {
		return key, &Denied{"the token is signed by a key that is not in api.jwt.jwks"}
	}
	return key, nil
}

// find returns the key that a header identifies. A header without a key ID identifies the only key.
func (t *Tokens) find(header jose.Header) (jose.JSONWebKey, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, key := range t.set {
		named := key.KeyID == header.KeyID || header.KeyID == "" && len(t.set) == 1
		if named && (key.Algorithm == "" || key.Algorithm == header.Algorithm) {
			return key, true
		}
	}
	return jose.JSONWebKey{}, false
}

// renew refreshes the keys if necessary, or waits for a running refresh. found reports whether the required key is
// known. renew returns an error if no valid keys are available.
func (t *Tokens) renew(ctx context.Context, found bool) error {
	t.mu.Lock()
	now := t.now()
	found = found && now.Sub(t.read) < keepSet
	due := now.Sub(t.read) >= renewEvery && now.Sub(t.tried) >= retryEvery
	if !found {
		due = now.Sub(t.tried) >= unknownEvery
	}
	wait, first := t.latest, t.latest == nil && due
	if first {
		wait = make(chan struct{})
		t.latest, t.tried = wait, now
	}
	t.mu.Unlock()
	switch {
	case first:
		t.reload(ctx, wait)
	case wait != nil && !found:
		select {
		case <-wait:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.set) == 0 || t.now().Sub(t.read) >= keepSet {
		return errors.New("the keys of api.jwt.jwks are unavailable; see the log for the reason")
	}
	return nil
}

// reload reads the keys, even if the client of the request disconnects, and closes done.
func (t *Tokens) reload(ctx context.Context, done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTime)
	defer cancel()
	data, err := t.load(ctx)
	var set []jose.JSONWebKey
	if err == nil {
		set, err = parseKeySet(data)
	}
	if err != nil {
		t.logger.WarnContext(ctx, "cannot read the keys of tokens; the last keys remain valid for a day", "setting", "api.jwt.jwks", "err", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.set, t.read = set, t.now()
	}
	t.latest = nil
	close(done)
}
