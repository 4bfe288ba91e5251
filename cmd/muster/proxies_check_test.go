package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/proxies/probe"
	"muster/proxies/proxytest"
)

// All proxies of a list are checked, even more than a refresh reads from a source.
func TestCheckReadsLongListsWhole(t *testing.T) {
	t.Parallel()
	var list strings.Builder
	for i := range 100_001 {
		fmt.Fprintf(&list, "10.%d.%d.%d:80\n", i>>16, i>>8&255, i&255)
	}
	var out, errs bytes.Buffer
	env := environment{stdin: strings.NewReader(list.String()), stdout: &out, stderr: &errs, hard: t.Context()}
	run(t.Context(), env, []string{"muster", "proxies", "check", "--setting", "proxies.allow_local=true", "--setting", "proxies.judges=http://127.0.0.1:1", "--file", "-"})
	if got := errs.String(); !strings.Contains(got, "no judge is reachable") || strings.Contains(got, "left out") {
		t.Errorf("got %q, want the judge's error and nothing left out", got)
	}
}

// A check against a target reports for each proxy whether it returns the page; without arguments it checks the pool.
func TestCheckAgainstTarget(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "our catalogue") }))
	t.Cleanup(site.Close)
	var names []string
	for _, o := range []proxytest.Options{{Kind: proxytest.SOCKS5}, {Kind: proxytest.Elite, User: "me", Password: "topsecret"}, {Kind: proxytest.Parking}, {Kind: proxytest.Dead}} {
		proxy := testutil.Must(proxytest.Start(o))(t)
		t.Cleanup(proxy.Close)
		names = append(names, proxy.URL.String())
	}
	dir := t.TempDir()
	muster := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		var out, errs bytes.Buffer
		args = append([]string{"muster", "proxies"}, args...)
		code := run(t.Context(), environment{stdin: strings.NewReader(""), stdout: &out, stderr: &errs, hard: t.Context()}, append(args, "--data-dir", dir, "--config", ""))
		if code != want || strings.Contains(out.String()+errs.String(), "topsecret") {
			t.Fatalf("%q: got exit code %d, %s%s, want %d and no password", args, code, &out, &errs, want)
		}
		return out.String(), errs.String()
	}
	target := []string{"check", "--target", site.URL + "/", "--expect", "our catalogue"}
	out, errs := muster(0, append(target, names...)...)
	for _, want := range []string{"alive   socks5 ", "alive   http     http://me:***@", "no      http ", "200  ", "unexpected: status 200, without the expected string", "dead    http ", "refused: "} {
		if !strings.Contains(out, want) {
			t.Errorf("got\n%s\nwant %s in it", out, want)
		}
	}
	if !strings.Contains(errs, "2 bring the target, 2 do not") {
		t.Errorf("got %s, want a summary", errs)
	}
	_, _ = muster(0, append([]string{"check", "--add", "--no-check"}, names[0], names[3])...)
	out, _ = muster(0, append(target, "--json", "--alive")...)
	var result struct {
		Protocol string `json:"protocol"`
		Status   int    `json:"status"`
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil || result.Protocol != "socks5" || result.Status != 200 {
		t.Errorf("got %s, %v, want the one of the pool that works", out, err)
	}
}

// A judge that others can reach warns when its TLS is not on port 443; one on loopback never does.
func TestJudgeWarnsOfTLSOnAPortThatProxiesRefuse(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		server *probe.JudgeServer
		port   string
		want   string
	}{
		"loopback":           {&probe.JudgeServer{URLs: []string{"http://127.0.0.1:80"}, TLSURL: "https://127.0.0.1:40001"}, "", ""},
		"another port":       {&probe.JudgeServer{URLs: []string{"http://[::]:80"}, TLSURL: "https://[::]:40001"}, "", "TLS is on port 40001"},
		"one of two outside": {&probe.JudgeServer{URLs: []string{"http://127.0.0.1:80", "http://8.8.8.8:80"}, TLSURL: "https://127.0.0.1:40001"}, "", "TLS is on port 40001"},
		"443":                {&probe.JudgeServer{URLs: []string{"http://8.8.8.8:80"}, TLSURL: "https://8.8.8.8:443"}, "", ""},
		"443 is forwarded":   {&probe.JudgeServer{URLs: []string{"http://8.8.8.8:80"}, TLSURL: "https://8.8.8.8:8443"}, "443", ""},
		"other is forwarded": {&probe.JudgeServer{URLs: []string{"http://8.8.8.8:80"}, TLSURL: "https://8.8.8.8:443"}, "444", "TLS is on port 444"},
		"none":               {&probe.JudgeServer{URLs: []string{"http://8.8.8.8:80"}}, "", "no TLS"},
	} {
		if got := tlsWarning(test.server, test.port); (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: got %q, want …%s…", name, got, test.want)
		}
	}
}
