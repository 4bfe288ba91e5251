package probe_test

import (
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/proxies/probe"
	"muster/proxies/proxytest"
	"muster/proxies/source"
)

// targetSite serves the expected string at "/" and unexpected responses at other paths.
func targetSite(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/":
		fmt.Fprint(w, "<html>the catalogue of ", r.Host, "</html>")
	case "/far":
		_, _ = io.WriteString(w, strings.Repeat("x", probe.MaxTarget)+"the catalogue")
	case "/moved":
		http.Redirect(w, r, "/", http.StatusFound)
	default:
		http.Error(w, "the catalogue is gone", http.StatusNotFound)
	}
}

// checkTarget returns the result of a proxy for a target.
func checkTarget(t *testing.T, o proxytest.Options, label string, target probe.Target) probe.Result {
	t.Helper()
	proxy := testutil.Must(proxytest.Start(o))(t)
	t.Cleanup(proxy.Close)
	prober := testutil.Must(probe.New(probe.Config{Target: &target, TotalTimeout: 20 * time.Second, GreetingTimeout: 2 * time.Second}))(t)
	testutil.Ok(t, prober.Start(t.Context()))
	c := candidate(proxy, label)
	var result probe.Result
	testutil.Ok(t, prober.Each(t.Context(), slices.Values([]source.Candidate{c}), func(r probe.Result) { result = r }))
	return result
}

// Each kind of proxy has the expected result for an http and an https target, with the right label and without one.
func TestTargetThroughAllKinds(t *testing.T) {
	t.Parallel()
	plain := testutil.Serve(t, http.HandlerFunc(targetSite))
	secure := httptest.NewUnstartedServer(http.HandlerFunc(targetSite))
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // some proxies abort TLS
	secure.StartTLS()
	t.Cleanup(secure.Close)
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	for _, test := range []struct {
		kind          proxytest.Kind
		http, https   string // the reason; "" if it succeeds
		label, spoken string
	}{
		{proxytest.Elite, "", "", "http", "http"},
		{proxytest.ForwardOnly, "", "denied", "http", "http"},
		{proxytest.ConnectOnly, "", "", "http", "http"},
		{proxytest.OverTLS, "", "", "https", "https"},
		{proxytest.SOCKS5, "", "", "socks5", "socks5"},
		{proxytest.SOCKS4, "", "", "socks4", "socks4"},
		{proxytest.MITM, "", "certificate", "http", "http"},
		{proxytest.Dead, "refused", "refused", "http", "http"},
		{proxytest.Parking, "unexpected", "", "http", "http"},
		{proxytest.Forbidding, "unexpected", "denied", "http", "http"},
		{proxytest.WantsAuth, "auth_required", "auth_required", "http", "http"},
	} {
		for _, label := range []string{test.label, ""} {
			for target, want := range map[*httptest.Server]string{plain: test.http, secure: test.https} {
				if test.kind == proxytest.Parking && target == secure {
					continue // the response to CONNECT is tested elsewhere
				}
				t.Run(fmt.Sprintf("%s %s %.5s", test.kind, label, target.URL), func(t *testing.T) {
					t.Parallel()
					got := checkTarget(t, proxytest.Options{Kind: test.kind}, label, probe.Target{URL: target.URL + "/", Expect: "the catalogue of 127.0.0.1", RootCAs: roots})
					if string(got.Reason) != want || got.Accepted() != (want == "") || got.Accepted() && (got.Protocol != test.spoken || got.Status != 200) {
						t.Errorf("got %+v, want reason %q by %s", got, want, test.spoken)
					}
				})
			}
		}
	}
}

// A response is accepted only with a 2xx status and the expected string within MaxTarget bytes.
func TestUnexpectedTargetResponse(t *testing.T) {
	t.Parallel()
	site := testutil.Serve(t, http.HandlerFunc(targetSite))
	for path, want := range map[string]string{
		"/other": "status 404", "/moved": `status 302, a redirect to "/"`, "/far": "status 200, without the expected string in the first",
	} {
		got := checkTarget(t, proxytest.Options{Kind: proxytest.Elite}, "http", probe.Target{URL: site.URL + path, Expect: "the catalogue"})
		if got.Reason != probe.Unexpected || !got.Alive || !strings.HasPrefix(got.Detail, want) {
			t.Errorf("%s: got %+v, want unexpected: %s", path, got, want)
		}
	}
}

func TestTargetValidation(t *testing.T) {
	t.Parallel()
	for target, want := range map[probe.Target]string{
		{URL: "shop.example", Expect: "x"}:              "must be an http or https URL",
		{URL: "ftp://shop.example/", Expect: "x"}:       "must be an http or https URL",
		{URL: "http://shop.example/"}:                   "requires an expected string",
		{URL: "https://me:hunter2@shop.example/"}:       "must not contain credentials",
		{URL: "https://shop.example:70000/"}:            "port must be from 1 to 65535",
		{URL: "http://shop..example/", Expect: "x"}:     "host name is invalid",
		{URL: "https://shop.example/%zz", Expect: "ok"}: "must be an http or https URL",
	} {
		if _, err := probe.New(probe.Config{Target: &target}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v, want %s", target.URL, err, want)
		}
	}
}
