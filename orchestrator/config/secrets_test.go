package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"muster/internal/testutil"
)

// Secrets in a settings file can refer to variables and files.
func TestReferencesToSecrets(t *testing.T) {
	t.Parallel()
	key := filepath.Join(t.TempDir(), "key")
	testutil.Ok(t, os.WriteFile(key, []byte("s3same-key-that-is-long-enough-for-it\n"), 0o600))
	file := write(t, `
redis: {url: "redis://u:${PASS}@host:1/0"}
api:
  keys:
    - ${KEY}
    - ${file:`+key+`}
proxies:
  sources: ["https://list/?k=${LATE}"]
queue: {user_agent: "${KEY}"}
`)
	l := read(t, Sources{File: file, Environ: []string{"PASS=s3same", "KEY=s3same-one-that-is-long-enough-for-it"}})
	if l.Redis.URL != "redis://u:s3same@host:1/0" {
		t.Errorf("got the url %q", l.Redis.URL)
	}
	if want := []string{"s3same-one-that-is-long-enough-for-it", "s3same-key-that-is-long-enough-for-it"}; !slices.Equal(l.API.Keys, want) {
		t.Errorf("got the keys %q, want %q", l.API.Keys, want)
	}
	if got := l.Proxies.Sources[0].URL; got != "https://list/?k=${LATE}" {
		t.Errorf("got the source %q, want an unresolved reference", got)
	}
	if l.Queue.UserAgent != "${KEY}" {
		t.Errorf("got the user agent %q, want no expansion in settings that are not secret", l.Queue.UserAgent)
	}
	if text := fmt.Sprint(l.Settings()); strings.Contains(text, "s3same") {
		t.Errorf("a secret is not masked: %s", text)
	}
	if len(l.Warnings) != 0 {
		t.Errorf("got the warnings %q, want none", l.Warnings)
	}
	testutil.Ok(t, os.Chmod(key, 0o644))
	l = read(t, Sources{File: file, Environ: []string{"PASS=s3same", "KEY=s3same-one-that-is-long-enough-for-it"}})
	if len(l.Warnings) != 1 || !strings.Contains(l.Warnings[0], key) {
		t.Errorf("got the warnings %q, want one with the file", l.Warnings)
	}
}

// T-118: one error contains all missing secrets and all other mistakes.
func TestEverythingMissingIsNamed(t *testing.T) {
	t.Parallel()
	_, err := Load(Sources{
		File: write(t, `
redis: {url: "${REDIS_URL}"}
api: {keys: ["${KEY_ONE} ${KEY_TWO}", "${file:/none/key}", "fine-here-with-its-32-characters"]}
proxies:
  sources: ["https://list/?k=${LIST_KEY}", {url: "https://two/", headers: {X-Token: "${TOKEN}"}, auth: "u:${file:/none/auth}"}]
workers: {concurrency: 1000}
`),
		Environ: []string{"MUSTER_PROXIES__JUDGE_KEY_FILE=/none/judge", "KEY_TWO="},
		Check: func(c Config, getenv func(string) (string, bool)) []error {
			return c.MissingForSources(getenv)
		},
	})
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{
		"muster.yaml:2:14: redis.url: environment variable REDIS_URL is not set",
		"muster.yaml:3:14: api.keys[0]: environment variable KEY_ONE is not set; environment variable KEY_TWO is not set",
		"api.keys[1]: secret file /none/key: no such file",
		"proxies.sources: source https://list/?k=${LIST_KEY}: environment variable LIST_KEY is not set",
		"environment variable TOKEN is not set", "secret file /none/auth",
		"environment MUSTER_PROXIES__JUDGE_KEY_FILE: proxies.judge_key: secret file /none/judge: no such file",
		"workers.concurrency: 1000 is out of range",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got\n%v\nwant it to have %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "short key") || strings.Contains(err.Error(), "address of a Redis") {
		t.Errorf("got\n%v\nwant each mistake once", err)
	}
}
