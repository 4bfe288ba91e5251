package access

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"muster/internal/testutil"
)

// issuer issues tokens.
type issuer struct {
	keys map[string]any // by kid
	algs map[string]jose.SignatureAlgorithm
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	r := testutil.Must(rsa.GenerateKey(rand.Reader, 2048))(t)
	small := testutil.Must(rsa.GenerateKey(rand.Reader, 1024))(t)
	e := testutil.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	testutil.Ok(t, err)
	return &issuer{
		keys: map[string]any{"rsa": r, "small": small, "ec": e, "ed": ed, "shared": []byte(strings.Repeat("s", 32))},
		algs: map[string]jose.SignatureAlgorithm{"rsa": jose.RS256, "small": jose.RS256, "ec": jose.ES256, "ed": jose.EdDSA, "shared": jose.HS256},
	}
}

// set returns the key set of kids: public keys, and shared secrets unchanged.
func (i *issuer) set(t *testing.T, kids ...string) []byte {
	t.Helper()
	var set jose.JSONWebKeySet
	for _, kid := range kids {
		key := i.keys[kid]
		if private, ok := key.(crypto.Signer); ok {
			key = private.Public()
		}
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: key, KeyID: kid, Algorithm: string(i.algs[kid]), Use: "sig"})
	}
	data := testutil.Must(json.Marshal(set))(t)
	return data
}

// sign returns a token with claims, signed with the key kid.
func (i *issuer) sign(t *testing.T, kid string, claims map[string]any) string {
	t.Helper()
	signer := testutil.Must(jose.NewSigner(jose.SigningKey{Algorithm: i.algs[kid], Key: jose.JSONWebKey{Key: i.keys[kid], KeyID: kid}}, nil))(t)
	text := testutil.Must(jwt.Signed(signer).Claims(claims).Serialize())(t)
	return text
}

// claims returns valid claims with changes; nil removes a claim.
func claims(at time.Time, changes map[string]any) map[string]any {
	all := map[string]any{"iss": "https://id.example", "aud": []string{"muster", "other"}, "sub": "ann", "jti": "t1", "role": "operator",
		"exp": at.Add(time.Hour).Unix(), "iat": at.Unix()}
	for name, value := range changes {
		if all[name] = value; value == nil {
			delete(all, name)
		}
	}
	return all
}

func tokensConfig(jwks string) TokensConfig {
	return TokensConfig{JWKS: jwks, Issuer: "https://id.example", Audience: "muster", RoleClaim: "role", Leeway: 30 * time.Second}
}

func TestOnlyValidTokensAreAccepted(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	path := filepath.Join(t.TempDir(), "keys.json")
	testutil.Ok(t, os.WriteFile(path, i.set(t, "rsa", "ec", "ed", "small", "shared"), 0o600))
	tokens := testutil.Must(NewTokens(tokensConfig(path), slog.New(slog.DiscardHandler)))(t)
	now := time.Now()
	tokens.now = func() time.Time { return now }
	for _, kid := range []string{"rsa", "ec", "ed"} {
		c, err := tokens.verify(t.Context(), i.sign(t, kid, claims(now, nil)))
		if want := (Caller{Name: "ann", ID: "jwt:t1", Role: Operator}); err != nil || c != want {
			t.Errorf("%s: got %+v, %v, want %+v", kid, c, err, want)
		}
	}
	none := "eyJhbGciOiJub25lIn0." + strings.Split(i.sign(t, "ec", claims(now, nil)), ".")[1] + "."
	good := i.sign(t, "ec", claims(now, nil))
	for text, want := range map[string]string{
		i.sign(t, "shared", claims(now, nil)): "algorithm",
		i.sign(t, "small", claims(now, nil)):  "not in api.jwt.jwks",
		none:                                  "algorithm",
		good[:len(good)-8] + "AAAAAAAA":       "signature",
		"a.b.c":                               "malformed",
		good + strings.Repeat("A", maxToken):  "more than",
		i.sign(t, "ec", claims(now, map[string]any{"exp": nil})):                               "must expire",
		i.sign(t, "ec", claims(now, map[string]any{"exp": now.Add(-31 * time.Second).Unix()})): "expired",
		i.sign(t, "ec", claims(now, map[string]any{"exp": now.Add(-29 * time.Second).Unix()})): "",
		i.sign(t, "ec", claims(now, map[string]any{"nbf": now.Add(time.Minute).Unix()})):       "not valid yet",
		i.sign(t, "ec", claims(now, map[string]any{"iss": "https://evil.example"})):            "another issuer",
		i.sign(t, "ec", claims(now, map[string]any{"iss": nil})):                               "another issuer",
		i.sign(t, "ec", claims(now, map[string]any{"aud": "other"})):                           "another audience",
		i.sign(t, "ec", claims(now, map[string]any{"sub": nil})):                               "no sub",
		i.sign(t, "ec", claims(now, map[string]any{"role": nil})):                              "none of the roles",
		i.sign(t, "ec", claims(now, map[string]any{"role": "root"})):                           "none of the roles",
		i.sign(t, "ec", claims(now, map[string]any{"role": []string{"x", "viewer"}})):          "",
		i.sign(t, "ec", claims(now, map[string]any{"role": []any{1, "root"}})):                 "none of the roles",
	} {
		_, err := tokens.verify(t.Context(), text)
		if why := denied(err); (err == nil) != (want == "") || !strings.Contains(why, want) {
			t.Errorf("%.200s: got %v, want %q", text, err, want)
		}
	}
}

// Keys from a URL remain valid while it is unavailable. An unknown key triggers a read, at limited intervals.
func TestKeysAreRenewedFromTheURL(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	var served atomic.Value
	var asked atomic.Int64
	served.Store(i.set(t, "ec"))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		if data := served.Load().([]byte); data != nil {
			_, _ = w.Write(data)
			return
		}
		http.Error(w, "away", http.StatusBadGateway)
	}))
	defer srv.Close()
	tokens := testutil.Must(NewTokens(tokensConfig(srv.URL+"/keys"), slog.New(slog.DiscardHandler)))(t)
	now := time.Now()
	tokens.now = func() time.Time { return now }
	check := func(kid, want string, reads int64) {
		t.Helper()
		_, err := tokens.verify(t.Context(), i.sign(t, kid, claims(now, nil)))
		if why := denied(err); (err == nil) != (want == "") || !strings.Contains(why, want) || asked.Load() != reads {
			t.Errorf("%s: got %v after %d reads, want %q after %d", kid, err, asked.Load(), want, reads)
		}
	}
	check("ec", "", 1)
	served.Store(i.set(t, "ec", "rsa"))
	check("rsa", "not in api.jwt.jwks", 1) // just read
	now = now.Add(unknownEvery)
	check("rsa", "", 2)
	served.Store([]byte(nil))
	now = now.Add(renewEvery)
	check("ec", "", 3) // the old keys
	check("ec", "", 3)
	now = now.Add(keepSet)
	if _, err := tokens.verify(t.Context(), i.sign(t, "ec", claims(now, nil))); err == nil || denied(err) != "" {
		t.Errorf("a day without the URL: got %v, want an error", err)
	}
	served.Store(i.set(t, "rsa"))
	now = now.Add(retryEvery)
	check("ec", "not in api.jwt.jwks", 5)
}

// Tokens of the same issuer for other purposes, such as logout+jwt, are rejected.
func TestOnlyAccessTokensAreAccepted(t *testing.T) {
	t.Parallel()
	for typ, want := range map[any]bool{
		nil: true, "JWT": true, "jwt": true, "at+jwt": true, "application/at+JWT": true,
		"logout+jwt": false, "secevent+jwt": false, "": false, 1: false,
	} {
		h := jose.Header{ExtraHeaders: map[jose.HeaderKey]any{}}
		if typ != nil {
			h.ExtraHeaders[jose.HeaderType] = typ
		}
		if got := isAccessToken(h); got != want {
			t.Errorf("typ %v: accepted %v, want %v", typ, got, want)
		}
	}
	i := newIssuer(t)
	path := filepath.Join(t.TempDir(), "keys.json")
	testutil.Ok(t, os.WriteFile(path, i.set(t, "ec"), 0o600))
	tokens := testutil.Must(NewTokens(tokensConfig(path), slog.New(slog.DiscardHandler)))(t)
	signer := testutil.Must(jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: i.keys["ec"], KeyID: "ec"}}, (&jose.SignerOptions{}).WithType("logout+jwt")))(t)
	text := testutil.Must(jwt.Signed(signer).Claims(claims(time.Now(), nil)).Serialize())(t)
	if _, err := tokens.verify(t.Context(), text); !strings.Contains(denied(err), "not an access token") {
		t.Errorf("got %v, want the token denied", err)
	}
}

// Before the first keys are read, a token is neither valid nor invalid.
func TestTokenIsUnknownBeforeKeysAreRead(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	for name, answer := range map[string]http.HandlerFunc{
		"away":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
		"empty":    func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"keys": []}`) },
		"too large": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"x": "%s", "keys": []}`, strings.Repeat("x", maxKeySet))
		},
	} {
		srv := httptest.NewServer(answer)
		tokens := testutil.Must(NewTokens(tokensConfig(srv.URL), slog.New(slog.DiscardHandler)))(t)
		if _, err := tokens.verify(t.Context(), i.sign(t, "ec", claims(time.Now(), nil))); err == nil || denied(err) != "" {
			t.Errorf("%s: got %v, want an error that the keys are not readable", name, err)
		}
		srv.Close()
	}
}

func TestKeyURLsMustBeSafe(t *testing.T) {
	t.Parallel()
	for url, ok := range map[string]bool{
		"https://id.example/keys": true, "http://127.0.0.1:80/keys": true, "http://localhost/keys": true,
		"http://id.example/keys": false, "ftp://id.example/keys": false, "https://u:p@id.example/": false, "https://": false,
	} {
		if err := CheckKeySetURL(url); (err == nil) != ok {
			t.Errorf("%s: got %v, want ok %v", url, err, ok)
		}
	}
	anyone := tokensConfig("https://id.example/keys")
	anyone.Audience = ""
	if _, err := NewTokens(anyone, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "audience") {
		t.Errorf("without an audience: got %v, want an error", err)
	}
	if _, err := NewTokens(tokensConfig(filepath.Join(t.TempDir(), "none")), slog.New(slog.DiscardHandler)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want a missing file", err)
	}
}

// The gate recognizes static keys, stored keys and tokens.
func TestGateTellsCredentialsApart(t *testing.T) {
	t.Parallel()
	var open *Gate
	if closed, err := open.Closed(context.Background()); closed || err != nil {
		t.Errorf("got %v, %v, want an open gate", closed, err)
	}
	if _, err := NewGate([]string{"pssst"}, nil, nil); err == nil || strings.Contains(err.Error(), "pssst") {
		t.Errorf("a short key: got %v", err)
	}
	first, second := strings.Repeat("first-key ", 4), "muster_"+strings.Repeat("second.key.", 3)
	g := testutil.Must(NewGate([]string{first, second}, nil, nil))(t)
	for text, want := range map[string]string{first: "settings-1", second: "settings-2", first + "x": "", "": "", "a.b.c": "", "muster_x_y": ""} {
		c, err := g.Identify(t.Context(), text)
		if c.ID != want || (denied(err) != "") != (want == "") || want != "" && c.Role != Admin {
			t.Errorf("%q: got %+v, %v, want %q", text, c, err, want)
		}
	}
}
