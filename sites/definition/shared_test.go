package definition

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
)

const sharedText = `user_agent: shared/1
politeness: {delay: 5s, max_per_domain: 4}
scope: {drop_params: [a, b]}
headers: {X-A: shared, X-B: shared}
session: {start: /hello}
retries: {attempts: 7}
`

// folder creates a directory with files.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		testutil.Ok(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

// A definition inherits the defaults of its directory; its own keys replace them one by one, also within sections.
func TestDefaultsOfAFolder(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{
		DefaultsFile: "--- # defaults of all\n" + sharedText, "other.yaml": "# X\n\n--- # defaults of other\n" + strings.Replace(good, "shop.example", "other.example", 1),
		"shop.yaml": good + "politeness: {delay: 1s}\nscope: {drop_params: [c]}\nheaders: {X-C: own}\nsession: {login: {url: /l, fields: {a: b}, signed_in: a}}\n",
	})
	set := NewSet()
	if err := LoadDir(set, dir); err != nil || len(set.Broken) > 0 || len(set.Valid) != 2 {
		t.Fatalf("got %d definitions, %v, %v, want 2", len(set.Valid), set.Broken, err)
	}
	other, shop := set.Valid["other.example"], set.Valid["shop.example"]
	if other.Politeness.Delay != 5*time.Second || other.UserAgent != "shared/1" || other.Headers["X-B"] != "shared" || other.Session.Start != "/hello" {
		t.Errorf("got %+v, want the defaults of the folder", other)
	}
	alone := testutil.Must(Load(filepath.Join(dir, "shop.yaml")))(t)
	again := testutil.Must(Parse("elsewhere.yaml", shop.YAML()))(t)
	whole := folder(t, map[string]string{"shop.yaml": string(shop.YAML()), DefaultsFile: "user_agent: another\n"})
	copied := testutil.Must(Load(filepath.Join(whole, "shop.yaml")))(t)
	for name, d := range map[string]*Definition{"in its folder": shop, "alone": alone, "of its text": again, "copied": copied} {
		if d.Politeness.Delay != time.Second || d.Politeness.MaxPerDomain != 4 || d.Retries.Attempts != 7 || d.UserAgent != "shared/1" || !d.Politeness.Robots {
			t.Errorf("%s: got %+v, want its own delay and the rest of the defaults", name, d)
		}
		if !slices.Equal(d.Scope.DropParams, []string{"c"}) || len(d.Headers) != 1 || d.Headers["X-C"] != "own" {
			t.Errorf("%s: got %v and %v, want the lists and headers of the definition", name, d.Scope.DropParams, d.Headers)
		}
		if d.Session.Start != "/hello" || d.Session.Login == nil {
			t.Errorf("%s: got %+v, want start of the defaults and login of the definition", name, *d.Session)
		}
	}
}

// Mistakes in defaults are reported at their position in that file, and break all sites of the directory.
func TestProblemsOfDefaults(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"politenes: {delay: 5s}\n":            `_defaults.yaml:1:1: unknown key "politenes"; did you mean "politeness"?`,
		"start: [/]\n":                        `_defaults.yaml:1:8: start: is specific to a site`,
		"politeness: {delay: soon}\n":         `_defaults.yaml:1:21: politeness.delay: want a duration`,
		"\npoliteness: {max_per_domain: 0}\n": `_defaults.yaml:2:30: politeness.max_per_domain: is 0; must be from 1 to 1000`,
		"- politeness\n":                      `_defaults.yaml:1:1: want a mapping`,
		"headers: {A: '${B'}\n":               `_defaults.yaml:1:14: headers.A: has ${ without }`,
		"user_agent: a\nuser_agent: b\n":      `_defaults.yaml:2:1: `,
		"session: {max: 3}\n":                 `_defaults.yaml:1:11: session: the key max was removed`,
	} {
		dir := folder(t, map[string]string{DefaultsFile: text, "shop.yaml": good})
		set := NewSet()
		if err := LoadDir(set, dir); err != nil || len(set.Broken) != 1 || set.Broken[0].Name != "shop.example" || !strings.Contains(set.Broken[0].Err.Error(), want) {
			t.Errorf("%s: got %v, %v, want that shop.example is broken by %s", text, set.Broken, err, want)
		}
		_, err := Load(filepath.Join(dir, "shop.yaml"))
		if _, ok := errors.AsType[*Problem](err); !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
		if err := LoadDefaults(os.DirFS(dir), ".", dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
	dir := folder(t, map[string]string{DefaultsFile: sharedText})
	if err := LoadDefaults(os.DirFS(dir), ".", dir); err != nil {
		t.Errorf("got %v, want good defaults", err)
	}
}
