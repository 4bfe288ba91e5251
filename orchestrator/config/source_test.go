package config

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"muster/proxies/source"
)

func TestSourcesWithOptions(t *testing.T) {
	t.Parallel()
	l := read(t, Sources{File: write(t, `
proxies:
  sources:
    - list.txt
    - url: https://me:s3same@example.org/list?key=${KEY}
      name: paid
      protocol: socks5
      headers: {X-Token: s3same2}
      auth: me:s3same3
      max: 500
      timeout: 20s
      every: 30m
    - name: gate
      gateway: http://me:s3same4_{country}_{session}@gate.example.org:31112
      countries: [Bulgaria]
      sessions: 3
`)})
	want := []Source{SourcesAt("list.txt")[0], {Source: source.Source{
		URL: "https://me:s3same@example.org/list?key=${KEY}", Name: "paid", Protocol: "socks5", Headers: map[string]string{"X-Token": "s3same2"},
		Auth: "me:s3same3", Max: 500, Timeout: 20 * time.Second,
	}, Every: 30 * time.Minute}, {Source: source.Source{Name: "gate", Gateway: "http://me:s3same4_{country}_{session}@gate.example.org:31112", Countries: []string{"Bulgaria"}, Sessions: 3}}}
	if got := l.Proxies.Sources; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, s := range l.Settings() {
		if strings.Contains(fmt.Sprint(s.Value), "s3same") {
			t.Errorf("a secret is not masked: %v", s.Value)
		}
	}
}

func TestWrongSources(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{url: a.txt, protocl: http}":                "protocl",
		"{name: x}":                                  "without a url",
		"{gateway: 'http://u:s3same@h:1'}":           "a gateway requires a name",
		"{name: x, sessions: 2}":                     "invalid gateway: use",
		"{url: a.txt, protocol: sock5}":              `did you mean "socks5"?`,
		"{url: a.txt, every: 10s}":                   "use a duration from 1m to 720h",
		"{url: a.txt, timeout: soon}":                "want a duration such as",
		"{url: a.txt, max: -1}":                      "out of range",
		"{url: 'https://u:s3same@h/', auth: secret}": "invalid auth: use user:password",
		"[nested]": "want a mapping with the keys name, url",
	} {
		_, err := Load(Sources{File: write(t, "proxies:\n  sources:\n    - "+text+"\n")})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3same") {
			t.Errorf("%s: got %v, want …%s…", text, err, want)
		}
	}
	if _, err := Load(Sources{Environ: []string{`MUSTER_PROXIES__SOURCES=[{"uri": "x"}]`}}); err == nil || !strings.Contains(err.Error(), "uri") {
		t.Errorf("got %v, want an error with uri", err)
	}
}
