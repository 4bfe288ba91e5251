package agent

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// FuzzAnswer checks that any response of an agent is a reply or an error of bounded length on one line.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{`{}`, `{"verdict":"accept","item":{"text":"x"},"usage":{"tokens":5}}`, `{"items":[{"key":"a"}]}`, `{"retry_after_seconds":1e308,"error":"x"}`, `{"usage":{"a":1.5}}`, `[]`, `null`, "\xff", ``, `{"a":1}{}`} {
		f.Add(200, "", []byte(s))
	}
	f.Add(503, "120", []byte("later"))
	f.Add(429, "Wed, 21 Oct 2026 07:28:00 GMT", []byte{})
	f.Add(404, "x", []byte("<html>\n\x00"))
	f.Fuzz(func(t *testing.T, status int, after string, raw []byte) {
		got := parseResponse("one", &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {after}}}, raw)
		if got.wait < 0 || got.wait > maxRest || (got.err == nil) != (got.outcome == pushCompleted || got.outcome == pushAccepted) {
			t.Fatalf("%d %q: got %+v", status, raw, got)
		}
		if got.outcome != pushCompleted {
			if got.err != nil && got.outcome == pushFailed && (len(got.err.Error()) > 1000 || !utf8.ValidString(got.err.Error())) {
				t.Errorf("%q: the error is %q", raw, got.err)
			}
			return
		}
		if d := got.reply.After(); d != nil && (*d < -time.Second || *d > maxRetryAfter+time.Second) {
			t.Errorf("%q: again after %s", raw, *d)
		}
		if _, err := json.Marshal(got.reply); err != nil {
			t.Errorf("%q cannot be stored: %v", raw, err)
		}
	})
}

// FuzzPrefix wants a URL to be allowed only on the host and port of the prefix, and below its path.
func FuzzPrefix(f *testing.F) {
	f.Add("http://10.0.0.7:8001/", "http://10.0.0.7:8001/creator")
	f.Add("https://a.example/x", "https://a.example:443/xy")
	f.Add("http://a.example", "http://a.example@evil.example/")
	f.Add("http://a.example/x", "http://a.example/x/../y")
	f.Add("http://a.example/x", "http://a.example/x/%2e%2e/y")
	f.Fuzz(func(t *testing.T, allowed, text string) {
		p, err := parsePrefix(allowed)
		if err != nil || CheckURL(text) != nil || !p.allows(text) {
			return
		}
		u, err := url.Parse(text)
		if err != nil || hostPort(u) != p.host || u.Scheme != p.scheme || !strings.HasPrefix(u.EscapedPath(), p.path) {
			t.Errorf("%q allows %q", allowed, text)
		}
	})
}
