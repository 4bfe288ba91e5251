package probe_test

import (
	"bufio"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/proxies/probe"
	"muster/proxies/source"
)

// TestRealProxies probes tinyproxy, squid, microsocks and Dante. MUSTER_TEST_PROXY_RIG is the list of a running rig;
// the test is skipped without one.
func TestRealProxies(t *testing.T) {
	t.Parallel()
	list := os.Getenv("MUSTER_TEST_PROXY_RIG")
	if list == "" {
		t.Skip("set MUSTER_TEST_PROXY_RIG to a list of real proxies")
	}
	type want struct {
		accepted  bool
		reason    probe.Reason
		anonymity string
		exit      string
		protocol  string
	}
	wants := map[uint16]want{
		7101: {true, "", probe.Transparent, "127.0.11.1", "http"},
		7102: {true, "", probe.Anonymous, "127.0.12.1", "http"},
		7103: {true, "", probe.Elite, "127.0.13.1", "http"},
		7104: {true, "", probe.Elite, "127.0.14.1", "http"},
		7105: {true, "", probe.Elite, "127.0.15.1", "socks5"},
		7106: {true, "", probe.Elite, "127.0.16.1", "socks5"},
		7107: {true, "", probe.Elite, "127.0.17.1", "socks5"},
		7108: {false, probe.OwnNetwork, probe.Transparent, "127.0.0.1", "http"},
		7109: {false, "refused", "", "", ""},
		7110: {false, "timeout", "", "", ""},
		7111: {false, probe.NotProxy, "", "", ""},
	}
	labelled := readRig(t, list)
	for _, labels := range []bool{true, false, true, false} {
		judge := testutil.Must(probe.StartJudge(probe.JudgeConfig{Key: "rig"}))(t)
		defer judge.Close()
		prober, err := probe.New(probe.Config{Judges: judge.URLs, Key: "rig", ResponseTimeout: 3 * time.Second, GreetingTimeout: 2 * time.Second})
		testutil.Ok(t, err)
		candidates := slices.Clone(labelled)
		if !labels {
			for i := range candidates {
				candidates[i].Protocol = ""
			}
		}
		seen := 0
		err = prober.Each(t.Context(), slices.Values(candidates), func(r probe.Result) {
			seen++
			w := wants[r.Candidate.Port]
			got := want{r.Accepted(), r.Reason, r.Anonymity, "", w.protocol}
			if r.Exit.IsValid() {
				got.exit = r.Exit.String()
			}
			if r.Alive {
				got.protocol = r.Protocol
			}
			if got != w {
				t.Errorf("%v: got %+v want %+v (%s)", r.Candidate, got, w, r.Detail)
			}
			t.Logf("labels=%t %v %s alive=%t %s exit=%v %s added=%v can=%+v %+v %s", labels, r.Candidate, r.Protocol, r.Alive, r.Reason, r.Exit, r.Anonymity, r.Added, r.Can, r.Latency, r.Detail)
		})
		if err != nil || seen != len(wants) {
			t.Fatalf("probed %d of %d: %v", seen, len(wants), err)
		}
	}
}

func readRig(t *testing.T, path string) []source.Candidate {
	t.Helper()
	f := testutil.Must(os.Open(path))(t)
	defer f.Close()
	var out []source.Candidate
	for lines := bufio.NewScanner(f); lines.Scan(); {
		u := testutil.Must(url.Parse(strings.TrimSpace(lines.Text())))(t)
		pair := netip.MustParseAddrPort(u.Host)
		c := source.Candidate{Protocol: u.Scheme, Host: pair.Addr().String(), Port: pair.Port(), Username: u.User.Username()}
		c.Password, _ = u.User.Password()
		out = append(out, c)
	}
	if len(out) == 0 {
		t.Fatal("empty list " + strconv.Quote(path))
	}
	return out
}
