package probe_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"

	"muster/proxies/probe"
	"muster/proxies/proxytest"
)

// A refused tunnel to a port other than 443 leaves HTTPS unknown. With the judge's TLS on 443, HTTPS is known.
func TestHTTPSWithTunnelsTo443Only(t *testing.T) {
	t.Parallel()
	elsewhere := startJudge(t, probe.JudgeConfig{})
	at443 := startJudge(t, probe.JudgeConfig{TLSPort: "443"})
	none := startJudge(t, probe.JudgeConfig{ListenTLS: "-"})
	for name, test := range map[string]struct {
		judge                   *probe.JudgeServer
		kind                    proxytest.Kind
		ports                   []string
		forward, https, unknown bool
	}{
		"random port refused":        {elsewhere, proxytest.Elite, []string{"443"}, true, false, true},
		"random port taken":          {elsewhere, proxytest.Elite, nil, true, true, false},
		"443":                        {at443, proxytest.Elite, []string{"443"}, true, true, false},
		"443 refused as well":        {at443, proxytest.Elite, []string{}, true, false, false},
		"judge without TLS":          {none, proxytest.Elite, nil, true, false, true},
		"443 only":                   {at443, proxytest.ConnectOnly, []string{"443"}, false, true, false},
		"443 and forwards unchanged": {at443, proxytest.Anonymous, []string{"443"}, true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hosts := proxytest.Hosts{"127.0.0.1:443": strings.TrimPrefix(at443.TLSURL, "https://")}
			p := start(t, proxytest.Options{Kind: test.kind, Exit: proxytest.ExitAddress(1), ConnectPorts: test.ports, Hosts: hosts})
			r, err := newProber(t, patient(test.judge, "")).Probe(t.Context(), candidate(p, "http"))
			if err != nil || !r.Accepted() || r.Can.Forward != test.forward || r.Can.HTTPS != test.https || r.Can.HTTPSUnknown != test.unknown || r.Exit != p.Exit {
				t.Errorf("got %+v (%s %s) exit %v, %v; want forward %t, https %t, not known %t", r.Can, r.Reason, r.Detail, r.Exit, err, test.forward, test.https, test.unknown)
			}
			if !test.forward && (r.Can.Connect || !r.Tunnel || r.Anonymity != probe.Elite) {
				t.Errorf("got %+v tunnel %t %s", r.Can, r.Tunnel, r.Anonymity)
			}
		})
	}
}

// A warning that proxies refuse tunnels to the judge's TLS port is logged once.
func TestRefusedTLSPortIsLoggedOnce(t *testing.T) {
	t.Parallel()
	judge := startJudge(t, probe.JudgeConfig{})
	var log bytes.Buffer
	cfg := patient(judge, "")
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(judge.URLs[0], "http://"))
	cfg.Judges = []string{"http://judge.example:" + port}
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, strings.Replace(addr, "judge.example", "127.0.0.1", 1))
	}
	prober := newProber(t, cfg)
	p := start(t, proxytest.Options{Kind: proxytest.Elite, Exit: proxytest.ExitAddress(1), ConnectPorts: []string{"443"}, Hosts: proxytest.Hosts{"judge.example": "127.0.0.1"}})
	for range 3 {
		if r, err := prober.Probe(t.Context(), candidate(p, "http")); err != nil || !r.Accepted() || !r.Can.HTTPSUnknown {
			t.Errorf("got %+v %v", r, err)
		}
	}
	if got := strings.Count(log.String(), "TLS on port 443"); got != 1 {
		t.Errorf("warned %d times, want once:\n%s", got, &log)
	}
}
