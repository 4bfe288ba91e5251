package probe_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"muster/proxies/probe"
	"muster/proxies/proxytest"
)

// Public pages serve as judges when there is none of ours, and only then.
func TestPublicJudges(t *testing.T) {
	t.Parallel()
	pages := map[string]http.HandlerFunc{
		"httpbin": func(w http.ResponseWriter, r *http.Request) {
			headers := map[string]string{"Host": r.Host, "X-Amzn-Trace-Id": r.URL.RawQuery}
			for name := range r.Header {
				headers[name] = r.Header.Get(name)
			}
			peer, _, _ := net.SplitHostPort(r.RemoteAddr)
			_ = json.NewEncoder(w).Encode(map[string]any{"args": map[string]string{"n": r.URL.Query().Get("n")}, "headers": headers, "origin": peer})
		},
		"azenv": func(w http.ResponseWriter, r *http.Request) {
			peer, _, _ := net.SplitHostPort(r.RemoteAddr)
			fmt.Fprintf(w, "<html><body><pre>\nREMOTE_ADDR = %s\nREQUEST_URI = %s\nHTTP_HOST = %s\n", peer, r.RequestURI, r.Host)
			for name := range r.Header {
				fmt.Fprintf(w, "HTTP_%s = %s\n", strings.ToUpper(strings.ReplaceAll(name, "-", "_")), r.Header.Get(name))
			}
			fmt.Fprint(w, "</pre></body></html>")
		},
	}
	for name, page := range pages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(page)
			t.Cleanup(server.Close)
			ours := startJudge(t, probe.JudgeConfig{})
			ours.Close()
			cfg := patient(ours, "")
			cfg.PublicJudges = []string{server.URL + "/get?show_env=1"}
			prober := newProber(t, cfg)
			for i, kind := range []proxytest.Kind{proxytest.Elite, proxytest.Anonymous, proxytest.Transparent, proxytest.SOCKS5, proxytest.ConnectOnly,
				proxytest.OwnNetwork, proxytest.Parking, proxytest.Dead, proxytest.Rotating} {
				p := start(t, proxytest.Options{Kind: kind, Exit: proxytest.ExitAddress(i)})
				r, err := prober.Probe(t.Context(), candidate(p, p.URL.Scheme))
				if err != nil {
					t.Fatal(err)
				}
				want := p.Expect()
				if r.Alive != want.Alive || r.Reason != want.Reason || r.Anonymity != want.Anonymity || r.Rotating != (kind == proxytest.Rotating) {
					t.Errorf("%s: got alive %t, %q, %q, added %v (%s); want %+v", kind, r.Alive, r.Reason, r.Anonymity, r.Added, r.Detail, want)
				}
			}
		})
	}

	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "the service has moved") }))
	t.Cleanup(page.Close)
	prober := newProber(t, probe.Config{PublicJudges: []string{page.URL}})
	if err := prober.Start(t.Context()); !errors.Is(err, probe.ErrJudge) || !strings.Contains(err.Error(), "does not show the request") {
		t.Errorf("got %v", err)
	}
}
