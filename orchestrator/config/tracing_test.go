package config

import (
	"fmt"
	"strings"
	"testing"
)

func TestTracingSettings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, file, want string }{
		{"no scheme", "tracing: {endpoint: collector:4318}", "invalid collector URL"},
		{"password in the address", "tracing: {endpoint: 'http://u:hush@collector:4318'}", "invalid collector URL"},
		{"query", "tracing: {endpoint: 'http://collector:4318?key=hush'}", "invalid collector URL"},
		{"header name", "tracing: {headers: {'a b': hush}}", `invalid header name "a b"`},
		{"header value", "tracing: {headers: {A: \"hush\\nB: c\"}}", "control character"},
		{"sample", "tracing: {sample: 1.1}", "out of range"},
		{"service", "tracing: {service: ''}", "must not be empty"},
	} {
		_, err := Load(Sources{File: write(t, c.file)})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: got error %v, want one with %q and without the secret", c.name, err, c.want)
		}
	}
	_, err := Load(Sources{File: write(t, ""), Environ: []string{"MUSTER_TRACING__HEADERS=hush"}})
	if err == nil || strings.Contains(err.Error(), "hush") {
		t.Errorf("got error %v, want one without the secret", err)
	}
	l := read(t, Sources{
		File:    write(t, "tracing: {endpoint: 'https://collector/otlp/v1/traces', headers: {Authorization: Bearer hush}}"),
		Environ: []string{"MUSTER_TRACING__HEADERS=X-Key=hush;X-Other=a,b"},
	})
	if got := l.Tracing.Headers; got["X-Key"] != "hush" || got["X-Other"] != "a,b" || len(got) != 2 {
		t.Errorf("headers are %v", got)
	}
	if text := fmt.Sprint(l.Settings()); strings.Contains(text, "hush") {
		t.Errorf("a secret is not masked: %s", text)
	}
	again := read(t, Sources{Environ: l.Environ("")})
	if fmt.Sprint(again.Tracing) != fmt.Sprint(l.Tracing) {
		t.Errorf("a child has %v, want %v", again.Tracing, l.Tracing)
	}
}
