package sites

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/sites/definition"
	"muster/sites/internal/sitetest"
	"muster/sites/internal/store"
)

// vault is a site that requires a token and a cookie.
func vault(t *testing.T) (url string, right *atomic.Int64) {
	t.Helper()
	right = new(atomic.Int64)
	srv := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := r.Cookie("sid")
		if r.Header.Get("X-Token") == "Token s3same" && err == nil && c.Value == "s3same" {
			right.Add(1)
		}
		_, _ = w.Write([]byte("<html><h1>A page with enough text that it is not taken for an empty one, I hope.</h1></html>"))
	}))
	return srv.URL, right
}

// withSecret writes a definition with a header and a cookie from a file.
func withSecret(t *testing.T, url string) (dir, key string) {
	t.Helper()
	dir, key = t.TempDir(), filepath.Join(t.TempDir(), "key")
	testutil.Ok(t, os.WriteFile(key, []byte("s3same\n"), 0o600))
	text := "site: vault\nbase_url: " + url + "\nstart: [/]\npoliteness: {robots: false, delay: 0s}\nheaders: {X-Token: 'Token ${file:" + key + "}'}\n" +
		"cookies: {sid: '${file:" + key + "}'}\nrecords:\n  thing: {from: listing, fields: {name: h1}}\n"
	testutil.Ok(t, os.WriteFile(filepath.Join(dir, "vault.yaml"), []byte(text), 0o600))
	return dir, key
}

// withVault loads the site's definition at a URL that contains a secret.
func withVault(t *testing.T, url string) (*Registry, *definition.Definition) {
	t.Helper()
	dir, _ := withSecret(t, url)
	registry := testutil.Must(LoadRegistry(dir, true))(t)
	def := testutil.Must(registry.Definition("vault"))(t)
	return registry, def
}

// Secrets of a definition are sent to its site and never stored in Redis. Jobs that were sent before the definition changed still
// have them.
func TestSecretsOfADefinition(t *testing.T) {
	t.Parallel()
	url, right := vault(t)
	registry, def := withVault(t, url)
	rdb := redistest.New(t)
	s := newService(t, rdb)
	s.Registry().Replace(registry)
	s.Registry().Replace(NewRegistry()) // the file was removed
	scrape(t, s, "job", def, ScrapeOptions{})
	if right.Load() == 0 {
		t.Error("the site did not get the token and the cookie")
	}
	stored, err := rdb.Get(t.Context(), store.RequestKey("job")).Result()
	if err != nil || strings.Contains(stored, "s3same") || !strings.Contains(stored, "${file:") {
		t.Errorf("got %v and the request %s, want the reference and no secret", err, stored)
	}
}

// A client that can send tasks cannot redirect a worker's secrets to itself.
func TestSecretsAreForTheFilesOfTheWorker(t *testing.T) {
	t.Parallel()
	url, right := vault(t)
	registry, own := withVault(t, url)
	other := sitetest.Parse(t, append(own.YAML(), "description: sent by someone\n"...))
	for name, c := range map[string]struct {
		def  *definition.Definition
		base string
		want string
	}{
		"a definition that it does not have": {other, "", "has no file with the definition"},
		"another address":                    {own, url, "never sent to another base URL"},
	} {
		if _, err := registry.withSecrets(c.def, c.base != ""); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	if right.Load() != 0 {
		t.Error("the secret was sent")
	}
}

// An error lists all missing secrets with their keys.
func TestMissingSecretsOfDefinitions(t *testing.T) {
	t.Parallel()
	dir, key := withSecret(t, "http://127.0.0.1:1")
	testutil.Ok(t, os.Remove(key))
	text := "site: two\nbase_url: http://127.0.0.1:1\nstart: [/]\nheaders: {X-A: '${A_TOKEN}', X-B: '${B_TOKEN} ${C_TOKEN}'}\nrecords:\n  thing: {from: listing, fields: {name: h1}}\n"
	testutil.Ok(t, os.WriteFile(filepath.Join(dir, "two.yaml"), []byte(text), 0o600))
	registry := testutil.Must(LoadRegistry(dir, true))(t)
	getenv := func(name string) (string, bool) { return map[string]string{"B_TOKEN": "x"}[name], name == "B_TOKEN" }
	var got strings.Builder
	for _, err := range registry.MissingSecrets(getenv) {
		got.WriteString(err.Error() + "\n")
	}
	for _, want := range []string{"vault.yaml:5:", "headers.X-Token", "cookies.sid", key, "two.yaml:", "A_TOKEN is not set", "C_TOKEN is not set"} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("got\n%swant it to have %q", got.String(), want)
		}
	}
	if errs := registry.MissingSecrets(getenv, "vault"); len(errs) != 1 {
		t.Errorf("got %v, want the errors of one site", errs)
	}
	if _, err := definition.Parse("x.yaml", []byte(strings.Replace(text, "${A_TOKEN}", "${A_TOKEN", 1))); err == nil || !strings.Contains(err.Error(), "${ without }") {
		t.Errorf("got %v, want an error for the reference that is not closed", err)
	}
	evil := func(string) (string, bool) { return "x\r\nHost: evil", true }
	def := testutil.Must(registry.Definition("two"))(t)
	if _, err := def.WithSecrets(evil); err == nil || strings.Contains(err.Error(), "evil") {
		t.Errorf("got %v, want an error that does not quote the secret", err)
	}
}
