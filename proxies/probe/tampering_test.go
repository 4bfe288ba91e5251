package probe_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"muster/internal/testutil"
	"muster/proxies/probe"
	"muster/proxies/proxytest"
)

// body returns an Alter function that changes the body and sets the matching Content-Length.
func body(change func(*http.Response, []byte) []byte) func(*http.Response) {
	return func(r *http.Response) {
		old, _ := io.ReadAll(r.Body)
		r.Body.Close()
		changed := change(r, old)
		r.Body = io.NopCloser(bytes.NewReader(changed))
		r.Header.Set("Content-Length", strconv.Itoa(len(changed)))
	}
}

// caching returns an Alter function that repeats the first response for each URL.
func caching() func(*http.Response) {
	var mu sync.Mutex
	kept := map[string][]byte{}
	return body(func(r *http.Response, fresh []byte) []byte {
		mu.Lock()
		defer mu.Unlock()
		url := r.Request.URL.String()
		if kept[url] == nil {
			kept[url] = fresh
		}
		return kept[url]
	})
}

// tampering is a modification of responses and the kinds expected in the result.
type tampering struct {
	alter func() func(*http.Response)
	want  []string
}

// tamperings modify bodies, statuses and headers.
func tamperings() map[string]tampering {
	return map[string]tampering{
		"append to all": {func() func(*http.Response) {
			return body(func(_ *http.Response, b []byte) []byte { return append(b, "<!-- ad -->"...) })
		}, []string{probe.TamperBody}},
		"append to pages": {func() func(*http.Response) {
			return body(func(r *http.Response, b []byte) []byte {
				if strings.HasPrefix(r.Header.Get("Content-Type"), "text/html") {
					b = append(b, "<!-- ad -->"...)
				}
				return b
			})
		}, []string{probe.TamperBody}},
		"replace a word by one of equal length": {func() func(*http.Response) {
			return body(func(_ *http.Response, b []byte) []byte {
				return bytes.ReplaceAll(b, []byte("Muster"), []byte("Custer"))
			})
		}, []string{probe.TamperBody}},
		"cut in half": {func() func(*http.Response) {
			return body(func(_ *http.Response, b []byte) []byte { return b[:len(b)/2] })
		}, []string{probe.TamperBody}},
		"replacement for a 404 page": {func() func(*http.Response) {
			return body(func(r *http.Response, b []byte) []byte {
				if r.StatusCode == http.StatusNotFound {
					b = []byte("search with us")
				}
				return b
			})
		}, []string{probe.TamperBody}},
		"headers only": {func() func(*http.Response) {
			return func(r *http.Response) {
				r.Header.Set("Via", "1.1 p")
				r.Header.Set("Age", "0")
				r.Header.Set("X-Cache", "MISS from p")
				r.Header.Set("Set-Cookie", "track=1")
				r.Header.Set("Date", "Thu, 01 Jan 1970 00:00:00 GMT")
			}
		}, nil},
		"200 for a 404": {func() func(*http.Response) {
			return func(r *http.Response) { r.StatusCode = http.StatusOK }
		}, []string{probe.TamperStatus}},
		"redirect for a 404": {func() func(*http.Response) {
			return func(r *http.Response) {
				if r.StatusCode == http.StatusNotFound {
					r.StatusCode = http.StatusFound
				}
			}
		}, []string{probe.TamperStatus}},
		"cache": {caching, []string{probe.TamperCache}},
	}
}

// A proxy that changes bodies or statuses or serves cached responses is not used for forwarding. Its tunnels remain
// usable; without tunnels it is rejected.
func TestTamperingPreventsForwarding(t *testing.T) {
	t.Parallel()
	judge := startJudge(t, probe.JudgeConfig{Key: "k"})
	prober := newProber(t, patient(judge, "k"))
	for name, test := range tamperings() {
		for _, kind := range []proxytest.Kind{proxytest.Elite, proxytest.ForwardOnly} {
			t.Run(name+"/"+string(kind), func(t *testing.T) {
				t.Parallel()
				p := start(t, proxytest.Options{Kind: kind, Exit: proxytest.ExitAddress(1), Alter: test.alter()})
				r := testutil.Must(prober.Probe(t.Context(), candidate(p, "http")))(t)
				forwards := len(test.want) == 0
				alive, reason := forwards || kind == proxytest.Elite, probe.Reason("")
				if !alive {
					reason = probe.Injects
				}
				if r.Alive != alive || r.Reason != reason || !slices.Equal(r.Tampering, test.want) {
					t.Errorf("got alive %t, reason %q, tampering %v (%s); want %t, %q, %v", r.Alive, r.Reason, r.Tampering, r.Detail, alive, reason, test.want)
				}
				if r.Can.Forward != forwards || r.Can.HTTPS != (kind == proxytest.Elite) || alive && r.Tunnel == forwards {
					t.Errorf("got %+v, tunnel %t; want forward %t", r.Can, r.Tunnel, forwards)
				}
			})
		}
	}
}

// A judge whose pages are modified without a proxy is unusable: modifications could not be attributed to proxies.
func TestJudgeBehindMiddleboxIsUnusable(t *testing.T) {
	t.Parallel()
	judge := startJudge(t, probe.JudgeConfig{})
	front := start(t, proxytest.Options{Kind: proxytest.Injector})
	prober := newProber(t, probe.Config{Judges: judge.URLs, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, front.URL.Host)
	}})
	if err := prober.Start(t.Context()); err == nil {
		t.Error("got no error")
	}
}

// A proxy that tampers with plain HTTP and opens tunnels to port 443 only is accepted for HTTPS, unless it intercepts
// TLS.
func TestTamperingProxyWithTunnelsTo443(t *testing.T) {
	t.Parallel()
	judge := startJudge(t, probe.JudgeConfig{TLSPort: "443"})
	hosts := proxytest.Hosts{"127.0.0.1:443": strings.TrimPrefix(judge.TLSURL, "https://")}
	alter := body(func(_ *http.Response, b []byte) []byte { return append(b, '!') })
	for kind, want := range map[proxytest.Kind]bool{proxytest.Elite: true, proxytest.MITM: false} {
		p := start(t, proxytest.Options{Kind: kind, Exit: proxytest.ExitAddress(1), ConnectPorts: []string{"443"}, Hosts: hosts, Alter: alter})
		r, err := newProber(t, patient(judge, "")).Probe(t.Context(), candidate(p, "http"))
		if err != nil || r.Accepted() != want || r.Can.HTTPS != want || r.Can.Forward || !slices.Equal(r.Tampering, []string{probe.TamperBody}) {
			t.Errorf("%s: got accepted %t %s %s %+v %v, %v; want accepted %t", kind, r.Accepted(), r.Reason, r.Detail, r.Can, r.Tampering, err, want)
		}
	}
}
