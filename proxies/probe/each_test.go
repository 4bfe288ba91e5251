package probe_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"muster/proxies/probe"
	"muster/proxies/proxytest"
	"muster/proxies/source"
)

// Results of concurrent probes are not mixed up: exit, kind and number belong to the same candidate.
func TestConcurrentResultsAreNotMixed(t *testing.T) {
	t.Parallel()
	judge := startJudge(t, probe.JudgeConfig{Key: "k"})
	cfg := patient(judge, "k")
	const crowd = 300
	cfg.Concurrency = crowd
	prober := newProber(t, cfg)
	// No kind that waits for the rest of a greeting: with these timeouts it takes a minute.
	kinds := []proxytest.Kind{proxytest.Elite, proxytest.Transparent, proxytest.SOCKS5, proxytest.Anonymous, proxytest.ForwardOnly,
		proxytest.ConnectOnly, proxytest.Parking, proxytest.HangsUp, proxytest.Forbidding, proxytest.Dead}
	proxies := map[uint16]*proxytest.Proxy{}
	var candidates []source.Candidate
	for i := range crowd {
		p := start(t, proxytest.Options{Kind: kinds[i%len(kinds)], Exit: proxytest.ExitAddress(i)})
		c := candidate(p, "")
		if i%2 == 0 {
			c.Protocol = p.URL.Scheme
		}
		c.Sources = []string{strconv.Itoa(i)}
		proxies[c.Port] = p
		candidates = append(candidates, c)
	}
	seen := map[uint16]bool{}
	err := prober.Each(t.Context(), slices.Values(candidates), func(r probe.Result) {
		p := proxies[r.Candidate.Port]
		want := p.Expect()
		if seen[r.Candidate.Port] {
			t.Errorf("%v reported twice", r.Candidate)
		}
		seen[r.Candidate.Port] = true
		if r.Alive != want.Alive || r.Reason != want.Reason || r.Anonymity != want.Anonymity {
			t.Errorf("%v: got alive=%t %q %q (%s), want %+v", r.Candidate, r.Alive, r.Reason, r.Anonymity, r.Detail, want)
		}
		if r.Alive && r.Exit != p.Exit {
			t.Errorf("%v: got exit %v, which is another's; want %v", r.Candidate, r.Exit, p.Exit)
		}
	})
	if err != nil || len(seen) != len(candidates) {
		t.Fatalf("%d of %d reported: %v", len(seen), len(candidates), err)
	}
}

// Cancellation keeps the results so far and leaves no probe running.
func TestEachStopsOnCancel(t *testing.T) {
	t.Parallel()
	judge := startJudge(t, probe.JudgeConfig{})
	prober := newProber(t, probe.Config{Judges: judge.URLs, Concurrency: 4, ResponseTimeout: time.Minute, TotalTimeout: time.Minute})
	good := start(t, proxytest.Options{Kind: proxytest.Elite, Exit: proxytest.ExitAddress(1)})
	silent := start(t, proxytest.Options{Kind: proxytest.Silent})
	candidates := append([]source.Candidate{candidate(good, "")}, slices.Repeat([]source.Candidate{candidate(silent, "")}, 10)...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var results []probe.Result
	err := prober.Each(ctx, slices.Values(candidates), func(r probe.Result) {
		results = append(results, r)
		cancel()
	})
	if !errors.Is(err, context.Canceled) || len(results) != 1 || !results[0].Alive {
		t.Fatalf("got %v and %d results", err, len(results))
	}
}

// A candidate that times out is probed Tries times, a known one at least twice. A refusal is final.
func TestTimeoutsAreRetried(t *testing.T) {
	t.Parallel()
	judge := startJudge(t, probe.JudgeConfig{})
	good := start(t, proxytest.Options{Kind: proxytest.Elite, Exit: proxytest.ExitAddress(1)})
	for name, test := range map[string]struct {
		known bool
		tries int
		fail  error // of the first lost dials
		lost  int64
		alive bool
		dials int64 // if the candidate is not alive
	}{
		"new":                      {false, 0, os.ErrDeadlineExceeded, 1, false, 1},
		"known":                    {true, 0, os.ErrDeadlineExceeded, 1, true, 0},
		"known, lost twice":        {true, 0, os.ErrDeadlineExceeded, 2, false, 2},
		"three tries":              {false, 3, os.ErrDeadlineExceeded, 2, true, 0},
		"three tries, lost thrice": {false, 3, os.ErrDeadlineExceeded, 3, false, 3},
		"known, three tries":       {true, 3, os.ErrDeadlineExceeded, 2, true, 0},
		"refused, three tries":     {false, 3, syscall.ECONNREFUSED, 1, false, 1},
		"refused, known":           {true, 0, syscall.ECONNREFUSED, 1, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var dials atomic.Int64
			cfg := patient(judge, "")
			cfg.Tries = test.tries
			cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if addr == good.URL.Host && dials.Add(1) <= test.lost {
					return nil, &net.OpError{Op: "dial", Err: test.fail}
				}
				return (&net.Dialer{}).DialContext(ctx, network, addr)
			}
			c := candidate(good, "http")
			c.Known = test.known
			err := newProber(t, cfg).Each(t.Context(), slices.Values([]source.Candidate{c}), func(r probe.Result) {
				if r.Alive != test.alive {
					t.Errorf("got alive %t (%s), want %t", r.Alive, r.Detail, test.alive)
				}
			})
			if err != nil || !test.alive && dials.Load() != test.dials {
				t.Errorf("got %d dials, %v; want %d", dials.Load(), err, test.dials)
			}
		})
	}
}

// Concurrent probes per network and per name are limited, and waiting candidates do not delay other networks.
func TestProbesPerNetworkAreLimited(t *testing.T) {
	t.Parallel()
	judge := startJudge(t, probe.JudgeConfig{})
	const others = 40
	var near, mostNear, far, mostGate, gate atomic.Int64
	release := make(chan struct{})
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		if strings.HasPrefix(addr, "127.") {
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}
		raise(&mostGate, gate.Add(1))
		defer gate.Add(-1)
		if strings.HasPrefix(addr, "10.0.0.") || strings.HasPrefix(addr, "gate.example") {
			raise(&mostNear, near.Add(1))
			defer near.Add(-1)
			select { // until all others have finished
			case <-release:
			case <-ctx.Done():
			}
		} else if far.Add(1) == others {
			close(release)
		}
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	prober := newProber(t, probe.Config{Judges: judge.URLs, Dial: dial, Concurrency: 10, PerNetwork: 2, ConnectTimeout: time.Minute, TotalTimeout: time.Minute})
	var candidates []source.Candidate
	for i := range 30 {
		candidates = append(candidates, source.Candidate{Protocol: "http", Host: fmt.Sprintf("10.0.0.%d", i), Port: 80}, source.Candidate{Protocol: "http", Host: "gate.example", Port: uint16(7000 + i)})
	}
	for i := range others {
		candidates = append(candidates, source.Candidate{Protocol: "http", Host: fmt.Sprintf("10.1.%d.1", i), Port: 80})
	}
	seen := 0
	err := prober.Each(t.Context(), slices.Values(candidates), func(r probe.Result) {
		seen++
		if r.Reason != "refused" {
			t.Errorf("%v: got %s (%s)", r.Candidate, r.Reason, r.Detail)
		}
	})
	if err != nil || seen != len(candidates) || mostNear.Load() > 4 || mostGate.Load() > 10 {
		t.Errorf("%d of %d reported, %v; at most %d at once into one network and one name, %d in all", seen, len(candidates), err, mostNear.Load(), mostGate.Load())
	}
}

// raise sets most to the maximum of most and n.
func raise(most *atomic.Int64, n int64) {
	for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
	}
}

// While this machine is out of file descriptors, candidates wait and none is reported as dead. The shortage passes.
func TestFileDescriptorShortageIsRetried(t *testing.T) {
	t.Parallel()
	judge := startJudge(t, probe.JudgeConfig{})
	p := start(t, proxytest.Options{Kind: proxytest.Elite, Exit: proxytest.ExitAddress(1)})
	var open, refused atomic.Int64
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		if open.Add(1) > 30 && refused.Load() < 300 {
			open.Add(-1)
			refused.Add(1)
			return nil, &net.OpError{Op: "dial", Err: syscall.EMFILE}
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			open.Add(-1)
			return nil, err
		}
		return &countedConn{Conn: conn, open: &open}, nil
	}
	cfg := patient(judge, "")
	cfg.Dial, cfg.Concurrency = dial, 20
	prober := newProber(t, cfg)
	alive := 0
	err := prober.Each(t.Context(), slices.Values(slices.Repeat([]source.Candidate{candidate(p, "http")}, 200)), func(r probe.Result) {
		if r.Accepted() {
			alive++
		} else {
			t.Errorf("got %s (%s)", r.Reason, r.Detail)
		}
	})
	if err != nil || alive != 200 || refused.Load() == 0 {
		t.Fatalf("got %d alive, %d refusals, %v", alive, refused.Load(), err)
	}
}

type countedConn struct {
	net.Conn
	open   *atomic.Int64
	closed atomic.Bool
}

func (c *countedConn) Close() error {
	if !c.closed.Swap(true) {
		c.open.Add(-1)
	}
	return c.Conn.Close()
}
