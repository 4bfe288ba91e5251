package probe_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"muster/internal/addressfilter"
	"muster/internal/dnstest"
	"muster/internal/testutil"
	"muster/proxies/probe"
	"muster/proxies/proxytest"
	"muster/proxies/source"
	"muster/proxies/tunnel"
)

// TestMain resolves names below .test to loopback.
func TestMain(m *testing.M) {
	net.DefaultResolver = dnstest.Resolver(dnstest.Loopback)
	goleak.VerifyTestMain(m)
}

// candidate returns the proxy as a candidate with a label.
func candidate(p *proxytest.Proxy, label string) source.Candidate {
	pair := netip.MustParseAddrPort(p.URL.Host)
	return source.Candidate{Protocol: label, Host: pair.Addr().String(), Port: pair.Port(), Username: p.User, Password: p.Password}
}

func startJudge(t *testing.T, cfg probe.JudgeConfig) *probe.JudgeServer {
	t.Helper()
	judge := testutil.Must(probe.StartJudge(cfg))(t)
	t.Cleanup(func() { judge.Close() })
	return judge
}

func newProber(t *testing.T, cfg probe.Config) *probe.Prober {
	t.Helper()
	cfg.ResponseTimeout = max(cfg.ResponseTimeout, 4*time.Second) // tolerates a machine that is busy with other tests
	cfg.GreetingTimeout = max(cfg.GreetingTimeout, 3*time.Second)
	prober := testutil.Must(probe.New(cfg))(t)
	return prober
}

// patient returns a configuration with timeouts that tolerate a busy machine.
func patient(judge *probe.JudgeServer, key string) probe.Config {
	return probe.Config{Judges: judge.URLs, Key: key, ConnectTimeout: time.Minute, GreetingTimeout: time.Minute, ResponseTimeout: time.Minute, TotalTimeout: 4 * time.Minute}
}

func start(t *testing.T, o proxytest.Options) *proxytest.Proxy {
	t.Helper()
	p := testutil.Must(proxytest.Start(o))(t)
	t.Cleanup(p.Close)
	return p
}

// Each kind of proxy is recognized with its own label, without one and with a wrong one.
func TestAllKindsWithAnyLabel(t *testing.T) {
	t.Parallel()
	judge := startJudge(t, probe.JudgeConfig{Key: "k"})
	// Limited concurrency: other tests share this machine.
	prober := newProber(t, probe.Config{Judges: judge.URLs, Key: "k", Concurrency: 64})
	kinds := []proxytest.Options{ // slow kinds first
		{Kind: proxytest.Silent}, {Kind: proxytest.Dribble}, {Kind: proxytest.SOCKS4}, {Kind: proxytest.SOCKS4A},
		{Kind: proxytest.Elite}, {Kind: proxytest.Anonymous}, {Kind: proxytest.Transparent}, {Kind: proxytest.ForwardOnly},
		{Kind: proxytest.ConnectOnly}, {Kind: proxytest.OverTLS}, {Kind: proxytest.SOCKS5}, {Kind: proxytest.Slow},
		{Kind: proxytest.Rotating}, {Kind: proxytest.OwnNetwork}, {Kind: proxytest.Injector}, {Kind: proxytest.MITM},
		{Kind: proxytest.Dead}, {Kind: proxytest.HangsUp}, {Kind: proxytest.Parking}, {Kind: proxytest.Redirecting},
		{Kind: proxytest.Forbidding}, {Kind: proxytest.WantsAuth}, {Kind: proxytest.BadGateway}, {Kind: proxytest.HalfResponse},
		{Kind: proxytest.Noise}, {Kind: proxytest.Endless}, {Kind: proxytest.Huge},
		{Kind: proxytest.Elite, User: "u", Password: "p@ss:w/rd"}, {Kind: proxytest.SOCKS5, User: "u", Password: "p"},
	}
	type trial struct {
		label string
		proxy *proxytest.Proxy
	}
	trials := map[string]trial{}
	var candidates []source.Candidate
	for _, o := range kinds {
		for _, label := range []string{"own", "", "http", "https", "socks4", "socks5"} {
			o.Exit = proxytest.ExitAddress(len(trials))
			p := start(t, o)
			c := candidate(p, label)
			if label == "own" {
				c.Protocol = p.URL.Scheme
			}
			trials[c.Address()] = trial{label, p}
			candidates = append(candidates, c)
		}
	}
	// Timeouts on a busy machine are probed again, at low concurrency.
	var late []source.Candidate
	var again bool
	judged := func(r probe.Result) {
		trial := trials[r.Candidate.Address()]
		p := trial.proxy
		name := fmt.Sprintf("%s%s labelled %q", p.Kind, p.User, trial.label)
		got := proxytest.Expectation{Alive: r.Alive, Accepted: r.Accepted(), Reason: r.Reason, Anonymity: r.Anonymity, HTTPS: r.Can.HTTPS}
		if r.Alive {
			got.Protocol = r.Protocol
		}
		want := p.Expect()
		if got.Reason != "" && p.Kind == proxytest.HalfResponse { // the reason depends on the protocol of the truncated response
			got.Reason = want.Reason
		}
		if got != want && !again {
			late = append(late, r.Candidate)
			return
		}
		if got != want {
			t.Errorf("%s:\ngot  %+v\nwant %+v\n(%s)", name, got, want, r.Detail)
			return
		}
		if want := p.Kind == proxytest.Rotating; r.Rotating != want {
			t.Errorf("%s: got rotating %t want %t", name, r.Rotating, want)
		}
		if r.Alive && p.Kind != proxytest.Rotating && r.Exit != p.Exit {
			t.Errorf("%s: got exit %v want %v", name, r.Exit, p.Exit)
		}
		if r.Alive && (r.Latency.FirstByte <= 0 || r.Latency.Total < r.Latency.FirstByte) {
			t.Errorf("%s: got latency %+v, want a total that includes the first byte", name, r.Latency)
		}
	}
	testutil.Ok(t, prober.Each(t.Context(), slices.Values(candidates), judged))
	again = true
	few := newProber(t, probe.Config{Judges: judge.URLs, Key: "k", Concurrency: 4})
	testutil.Ok(t, few.Each(t.Context(), slices.Values(late), judged))
}

// A replayed response is rejected as forged although its signature is valid.
func TestReplayedResponseIsForged(t *testing.T) {
	t.Parallel()
	judge := startJudge(t, probe.JudgeConfig{Key: "k"})
	prober := newProber(t, patient(judge, "k"))
	p := start(t, proxytest.Options{Kind: proxytest.Replays, Exit: proxytest.ExitAddress(1)})
	if _, err := prober.Probe(t.Context(), candidate(p, "http")); err != nil { // the first response is genuine
		t.Fatal(err)
	}
	r, err := prober.Probe(t.Context(), candidate(p, "http"))
	if err != nil || r.Alive || r.Reason != probe.Forged {
		t.Fatalf("got alive=%t %s %v, want forged", r.Alive, r.Reason, err)
	}
}

// Wrong credentials and missing credentials have different reasons.
func TestMissingAndWrongCredentialsHaveDifferentReasons(t *testing.T) {
	t.Parallel()
	judge := startJudge(t, probe.JudgeConfig{})
	prober := newProber(t, patient(judge, ""))
	for _, kind := range []proxytest.Kind{proxytest.Elite, proxytest.ConnectOnly, proxytest.SOCKS5} {
		for want, password := range map[probe.Reason]string{"auth_required": "", "auth_rejected": "wrong", "": "right"} {
			t.Run(string(kind)+"/"+password, func(t *testing.T) {
				t.Parallel()
				p := start(t, proxytest.Options{Kind: kind, User: "u", Password: "right", Exit: proxytest.ExitAddress(3)})
				c := candidate(p, p.URL.Scheme)
				c.Password = password
				if password == "" {
					c.Username = ""
				}
				r, err := prober.Probe(t.Context(), c)
				if err != nil || r.Reason != want {
					t.Fatalf("got %q (%s) %v want %q", r.Reason, r.Detail, err, want)
				}
			})
		}
	}
}

// Without a judge no results are reported, only ErrJudge.
func TestNoJudge(t *testing.T) {
	t.Parallel()
	judge := startJudge(t, probe.JudgeConfig{})
	p := start(t, proxytest.Options{Kind: proxytest.Elite, Exit: proxytest.ExitAddress(1)})
	prober := newProber(t, probe.Config{Judges: judge.URLs})
	if r, err := prober.Probe(t.Context(), candidate(p, "")); err != nil || !r.Alive {
		t.Fatalf("got %+v %v, want it alive", r, err)
	}
	judge.Close() // in the middle of the run
	reported := 0
	err := prober.Each(t.Context(), slices.Values(slices.Repeat([]source.Candidate{candidate(p, "")}, 20)), func(probe.Result) { reported++ })
	if !errors.Is(err, probe.ErrJudge) || !strings.Contains(err.Error(), "refused") {
		t.Fatalf("got %v, want ErrJudge: refused", err)
	}
	if reported != 0 {
		t.Fatalf("got %d results without a judge, want 0", reported)
	}

	wrongKey := startJudge(t, probe.JudgeConfig{Key: "one"})
	prober = newProber(t, probe.Config{Judges: wrongKey.URLs, Key: "other"})
	if err := prober.Start(t.Context()); !errors.Is(err, probe.ErrJudge) || !strings.Contains(err.Error(), "different keys") {
		t.Fatalf("got %v, want ErrJudge: different keys", err)
	}
}

// Proxies that cannot reach a judge on loopback are not reported as dead.
func TestLoopbackJudgeRejectsRemoteProxy(t *testing.T) {
	t.Parallel()
	judge := startJudge(t, probe.JudgeConfig{})
	prober := newProber(t, probe.Config{Judges: judge.URLs})
	_, err := prober.Probe(t.Context(), source.Candidate{Host: "8.8.8.8", Port: 80})
	if !errors.Is(err, probe.ErrJudge) || !strings.Contains(err.Error(), "public address") {
		t.Fatalf("got %v, want ErrJudge that names a public address", err)
	}
}

// When the current judge fails, the next one replaces it and no proxy is reported as dead.
func TestSecondJudgeTakesOver(t *testing.T) {
	t.Parallel()
	one, two := startJudge(t, probe.JudgeConfig{}), startJudge(t, probe.JudgeConfig{})
	cfg := patient(one, "")
	cfg.Judges = slices.Concat(one.URLs, two.URLs)
	prober := newProber(t, cfg)
	p := start(t, proxytest.Options{Kind: proxytest.Elite, Exit: proxytest.ExitAddress(1)})
	for i := range 3 {
		if i == 1 {
			one.Close()
		}
		if r, err := prober.Probe(t.Context(), candidate(p, "http")); err != nil || !r.Accepted() {
			t.Fatalf("probe %d: got %+v %v, want it accepted", i, r, err)
		}
	}
}

// TotalTimeout limits the other timeouts. Invalid values are rejected.
func TestTotalTimeoutLimitsOtherTimeouts(t *testing.T) {
	t.Parallel()
	judge := startJudge(t, probe.JudgeConfig{})
	silent := start(t, proxytest.Options{Kind: proxytest.Silent})
	prober, err := probe.New(probe.Config{Judges: judge.URLs, TotalTimeout: 300 * time.Millisecond, ConnectTimeout: time.Hour, GreetingTimeout: time.Hour, ResponseTimeout: time.Hour})
	testutil.Ok(t, err)
	r, err := prober.Probe(t.Context(), candidate(silent, ""))
	if err != nil || r.Alive || r.Reason != "timeout" {
		t.Errorf("got %+v %v, want a timeout", r, err)
	}
	for _, cfg := range []probe.Config{{Tries: -1}, {TotalTimeout: -time.Second}, {ConnectTimeout: -1}} {
		cfg.Judges = judge.URLs
		if _, err := probe.New(cfg); err == nil || !strings.Contains(err.Error(), "must be at least 1") {
			t.Errorf("%+v: got %v, want an error that names the minimum", cfg, err)
		}
	}
}

// A candidate whose name resolves to loopback is not connected to unless the filter allows it.
func TestPrivateAddressesOfNamesAreNotProbed(t *testing.T) {
	t.Parallel()
	judge := startJudge(t, probe.JudgeConfig{Key: "k"})
	p := start(t, proxytest.Options{Kind: proxytest.Elite, Exit: proxytest.ExitAddress(1)})
	c := candidate(p, "http")
	c.Host = "proxy.test"
	allowed := testutil.Must(addressfilter.New(addressfilter.Local()...))(t)
	for _, filter := range []*addressfilter.Filter{nil, allowed} {
		cfg := patient(judge, "k")
		cfg.Filter = filter
		r, err := newProber(t, cfg).Probe(t.Context(), c)
		if filter == nil {
			if err != nil || r.Alive || r.Reason != tunnel.PrivateAddress || p.Requests() != 0 {
				t.Errorf("got %+v, %v and %d requests, want reason %s and no request", r, err, p.Requests(), tunnel.PrivateAddress)
			}
		} else if err != nil || !r.Alive {
			t.Errorf("allowed: got %+v, %v, want alive", r, err)
		}
	}
}

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
