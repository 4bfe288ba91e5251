package redisd

import (
	"os"
	"strings"
	"testing"

	"muster/internal/testutil"
)

// FuzzRedact checks that redacted addresses contain no password.
func FuzzRedact(f *testing.F) {
	for _, s := range []string{"redis://u:", "redis://:", "redis-cluster://u:", "redis://h/0?password=", "redis-sentinel://h?sentinel_password=", "rediss://u:a", "redis://u:%"} {
		f.Add(s, "@h:1/0")
		f.Add(s, "&x=1")
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		const password = "s3cr3t-w0rd"
		scheme, login, ok := strings.Cut(before, "://")
		if !ok || strings.ContainsAny(scheme+login, "/?#@, %") || !strings.Contains(login, ":") || !strings.HasPrefix(after, "@") {
			return // not a password position
		}
		text := before + password + after
		for _, shown := range []string{Redact(text), withoutPassword(text)} {
			if strings.Contains(shown, password) {
				t.Errorf("%q is shown as %q", text, shown)
			}
		}
	})
}

// FuzzFiles checks that damaged files of a data directory, and INFO of a server that is not a Redis, are parsed or rejected.
func FuzzFiles(f *testing.F) {
	f.Add([]byte(`{"url":"redis://127.0.0.1:1/0","mode":"child","owner":{"pid":1}}`))
	f.Add([]byte(`{"url":1}`))
	f.Add([]byte("redis_version:7.0.15\r\nrole:master\r\n:\r\n"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, raw []byte) {
		testutil.Ok(t, os.WriteFile(addressPath(dir), raw, 0o600))
		if a, err := readAddress(dir); err == nil && len(a.URL) > len(raw) {
			t.Errorf("%q is read as %+v", raw, a)
		}
		for name, value := range parseInfo(string(raw)) {
			if strings.ContainsAny(name+value, "\n") || strings.Contains(name, ":") {
				t.Errorf("%q: got %q and %q", raw, name, value)
			}
		}
		_ = old(parseInfo(string(raw))["redis_version"])
	})
}
