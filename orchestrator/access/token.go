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
	maxKeySet    = 1 << 20  // bytes of a set of keys
	maxSetKeys   = 200
	minRSA       = 2048 // bits
	fetchTime    = 5 * time.Second
	renewEvery   = 5 * time.Minute  // how old keys may be
	retryEvery   = time.Minute      // after they could not be renewed
	unknownEvery = 10 * time.Second // how often a token with an unknown key makes us look again
	keepSet      = 24 * time.Hour   // how old keys may be while they cannot be renewed
)

// algorithms are those with a public key. With a shared secret, whoever can check a token could make one.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// TokensConfig says which tokens are accepted.
type TokensConfig struct {
	JWKS      string        // https URL, http URL on loopback, or path of a file with the public keys. Required.
	Issuer    string        // iss of the tokens. Required.
	Audience  string        // one of aud. Required.
	RoleClaim string        // the claim with the role: a text or a list of them. Defaults to "role".
	Leeway    time.Duration // by which clocks may differ. Defaults to 0.
	Logger    *slog.Logger  // Defaults to slog.Default().
}

// Tokens checks JSON Web Tokens (RFC 7519) against the public keys of an identity
// provider. It is safe for concurrent use.
type Tokens struct {
	cfg  TokensConfig
	now  func() time.Time
	load func(context.Context) ([]byte, error)

	mu     sync.Mutex // guards the fields below
	set    []jose.JSONWebKey
	read   time.Time     // when set was read; zero: never
	tried  time.Time     // when that was tried last
	latest chan struct{} // closed when the read under way has ended; nil without one
}

// NewTokens returns Tokens. It reads a file at once, and a URL with the first token.
func NewTokens(cfg TokensConfig) (*Tokens, error) {
	if cfg.RoleClaim == "" {
		cfg.RoleClaim = "role"
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Issuer == "" || cfg.Audience == "" {
		return nil, errors.New("api.jwt: set issuer and audience: otherwise a token for another service would count here")
	}
	t := &Tokens{cfg: cfg, now: time.Now}
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

// CheckKeySetURL returns an error unless keys may be fetched from a URL: whoever can
// change them in transit could make tokens.
func CheckKeySetURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "":
		return errors.New("this is no URL; write https://host/path, or the path of a file")
	case u.User != nil:
		return errors.New("leave user and password out of the URL")
	case u.Scheme != "https" && (u.Scheme != "http" || !addressfilter.IsLoopback(u.Hostname())):
		return errors.New("use https: keys that come over a network without it could be replaced; or name a file")
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
		return nil, fmt.Errorf("the answer is %s; redirects are not followed", resp.Status)
	}
	return limited(resp.Body)
}

func limited(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxKeySet+1))
	if err == nil && len(data) > maxKeySet {
		err = fmt.Errorf("a set of keys has at most %d bytes", maxKeySet)
	}
	return data, err
}

// parseKeySet returns the public keys of a JSON Web Key Set (RFC 7517) that can check
// signatures. Others are left out, as the RFC wants it.
func parseKeySet(data []byte) ([]jose.JSONWebKey, error) {
	var raw struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, fmt.Errorf("no set of keys: %w", err)
	}
	var set []jose.JSONWebKey
	for _, data := range raw.Keys[:min(len(raw.Keys), maxSetKeys)] {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(data) != nil || key.Use != "" && key.Use != "sig" {
			continue
		}
		public := key.Public() // of a shared secret there is none
		if small, ok := public.Key.(*rsa.PublicKey); ok && small.N.BitLen() < minRSA || !public.Valid() {
			continue
		}
		set = append(set, public)
	}
	if len(set) == 0 {
		return nil, errors.New("the set has no public key for signatures")
	}
	return set, nil
}

// verify returns who a token is of, or a *Denied. Another error means that the keys
// cannot be read.
func (t *Tokens) verify(ctx context.Context, text string) (Caller, error) {
	if len(text) > maxToken {
		return Caller{}, &Denied{fmt.Sprintf("the token has more than %d bytes", maxToken)}
	}
	token, err := jwt.ParseSigned(text, algorithms)
	if err != nil || len(token.Headers) != 1 {
		return Caller{}, &Denied{"the token cannot be read, or is signed by an algorithm that is not accepted"}
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
		return Caller{}, &Denied{"the signature of the token is wrong"}
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

// caller checks the claims of a token whose signature is right.
func (t *Tokens) caller(claims jwt.Claims, all map[string]any) (Caller, error) {
	if claims.Expiry == nil {
		return Caller{}, &Denied{"the token has no exp: tokens must expire"}
	}
	expected := jwt.Expected{Issuer: t.cfg.Issuer, AnyAudience: jwt.Audience{t.cfg.Audience}, Time: t.now()}
	switch err := claims.ValidateWithLeeway(expected, t.cfg.Leeway); {
	case errors.Is(err, jwt.ErrExpired):
		return Caller{}, &Denied{"the token is expired"}
	case errors.Is(err, jwt.ErrInvalidIssuer):
		return Caller{}, &Denied{"the token is of another issuer"}
	case errors.Is(err, jwt.ErrInvalidAudience):
		return Caller{}, &Denied{"the token is for another audience"}
	case err != nil:
		return Caller{}, &Denied{"the token is not valid yet"}
	case claims.Subject == "":
		return Caller{}, &Denied{"the token has no sub"}
	}
	role, ok := roleOf(all[t.cfg.RoleClaim])
	if !ok {
		return Caller{}, &Denied{fmt.Sprintf("the claim %s of the token names no role of %s", t.cfg.RoleClaim, names(Roles))}
	}
	return Caller{Name: clip.Line(claims.Subject, 200), ID: tokenID + clip.Line(claims.ID, 200), Role: role}, nil
}

// tokenID begins the id of a caller with a token. No key has it.
const tokenID = "jwt:"

// roleOf returns the role in a claim: a text, or a list with the role that may do most.
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

// key returns the public key for the header of a token. It reads the keys again if
// they are old, and if none is the one that the header names. While they cannot
// be read, the last ones count for a day.
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

// find returns the key that a header names. A header without a name means the only key.
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

// renew reads the keys again if it is time, or waits for the one who does. found says
// whether the key that is needed is there. It returns an error if there are no keys.
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
		return errors.New("the keys of api.jwt.jwks cannot be read now; the log says why")
	}
	return nil
}

// reload reads the keys, whether or not the client of the request waits, and closes done.
func (t *Tokens) reload(ctx context.Context, done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTime)
	defer cancel()
	data, err := t.load(ctx)
	var set []jose.JSONWebKey
	if err == nil {
		set, err = parseKeySet(data)
	}
	if err != nil {
		t.cfg.Logger.WarnContext(ctx, "cannot read the keys of tokens; the last ones count for a day", "setting", "api.jwt.jwks", "err", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.set, t.read = set, t.now()
	}
	t.latest = nil
	close(done)
}
