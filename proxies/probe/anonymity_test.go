package probe

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// An unknown header reveals a proxy, a header with our address reveals us, and changes that any HTTP client makes to
// its own connection reveal nothing.
func TestGradeByAddedHeaders(t *testing.T) {
	t.Parallel()
	real := []netip.Addr{netip.MustParseAddr("1.2.3.4"), netip.MustParseAddr("2001:db8::7")}
	for header, want := range map[string]string{
		// our address
		"X-Thing: client 1.2.3.4, port 9":        Transparent,
		"X-Thing: 1.2.3.4.":                      Transparent,
		"Forwarded: for=1.2.3.4;proto=http":      Transparent,
		`Forwarded: for="[2001:db8:0::7]:4711"`:  Transparent,
		"X-Forwarded-For: 8.8.8.8, 1.2.3.4:5555": Transparent,
		"X-Client: ::ffff:1.2.3.4":               Transparent,
		"X-Client: ::ffff:102:304":               Transparent,
		"Connection: keep-alive, 1.2.3.4":        Transparent, // in a header that may change
		"Via: 1.1 1.2.3.4:8080":                  Transparent,
		// a proxy, but not us
		"vIA: 1.1 x":                                  Anonymous,
		"X-Forwarded-Server: p":                       Anonymous,
		"X-Trivia: via":                               Anonymous, // added by a proxy only
		"X-Thing: 11.2.3.45":                          Anonymous, // another address
		"X-Forwarded-For: unknown":                    Anonymous,
		"X-Forwarded-Proto: http":                     Anonymous,
		"X-Request-Id: 5f0c3a7e-8d2b":                 Anonymous,
		"X-Correlation-Id: 7":                         Anonymous,
		"Traceparent: 00-0af7651916cd43dd8448eb21-01": Anonymous,
		"X-Varnish: 32770":                            Anonymous,
		"X-Imforwards: 20":                            Anonymous,
		"X-Wap-Profile: http://wap.example/p.xml":     Anonymous,
		"X-Nokia-Gateway-Id: n":                       Anonymous,
		"Surrogate-Capability: a=ESI/1.0":             Anonymous,
		"Max-Forwards: 9":                             Anonymous,
		"X-Accel-Internal: /p":                        Anonymous,
		"Dnt: 1":                                      Anonymous,
		"Referer: http://judge/":                      Anonymous,
		"Cookie: a=b":                                 Anonymous,
		"User-Agent: Other":                           Anonymous,
		"Accept: text/html":                           Anonymous,
		"Proxy-Connection: keep-alive":                Anonymous,
		"Connection: Proxy-Something":                 Anonymous,
		"Keep-Alive: for the client":                  Anonymous,
		"Cache-Control: max-age=0, proxy":             Anonymous,
		"Accept-Encoding: gzip, my-own-coding":        Anonymous,
		// neither
		"Connection: keep-alive":                   Elite,
		"Keep-Alive: timeout=5, max=100":           Elite,
		"Keep-Alive: 300":                          Elite,
		"Cache-Control: max-age=259200":            Elite, // squid
		"Accept-Encoding: gzip, deflate, br;q=0.5": Elite,
		"Content-Length: 0":                        Elite,
		"Host: judge":                              Elite,
	} {
		t.Run(header, func(t *testing.T) {
			t.Parallel()
			name, value, _ := strings.Cut(header, ": ")
			through := &Echo{Peer: netip.MustParseAddr("9.9.9.9"), Headers: append(direct(), [2]string{name, value})}
			wantAdded := []string{http.CanonicalHeaderKey(name)}
			if name == "Host" {
				wantAdded = nil
			}
			if got, added := grade(&Echo{Headers: direct()}, through, real); got != want || !slices.Equal(added, wantAdded) {
				t.Errorf("got %s, added %v; want %s, %v", got, added, want, wantAdded)
			}
		})
	}
}

// direct returns the headers of a direct request as received by a judge.
func direct() [][2]string {
	return [][2]string{{"Host", "judge:80"}, {"User-Agent", "Muster"}, {"Accept", "*/*"}, {"Accept-Encoding", "identity"}, {"Connection", "close"}}
}

// Dropped and duplicate headers count as changes, and our own exit address is transparent.
func TestGradeByDroppedHeadersAndExit(t *testing.T) {
	t.Parallel()
	us, elsewhere := netip.MustParseAddr("1.2.3.4"), netip.MustParseAddr("9.9.9.9")
	without := func(names ...string) [][2]string {
		return slices.DeleteFunc(direct(), func(h [2]string) bool { return slices.Contains(names, h[0]) })
	}
	for name, test := range map[string]struct {
		peer    netip.Addr
		headers [][2]string
		want    string
		added   []string
	}{
		"nothing changed":                  {elsewhere, direct(), Elite, nil},
		"the exit is our address":          {us, direct(), Transparent, nil},
		"hop-by-hop and encodings dropped": {elsewhere, without("Connection", "Accept-Encoding"), Elite, []string{"Accept-Encoding", "Connection"}},
		"user agent dropped":               {elsewhere, without("User-Agent"), Anonymous, []string{"User-Agent"}},
		"accept dropped":                   {elsewhere, without("Accept"), Anonymous, []string{"Accept"}},
		"a header twice":                   {elsewhere, append(direct(), [2]string{"Accept", "*/*"}), Anonymous, []string{"Accept"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, added := grade(&Echo{Headers: direct()}, &Echo{Peer: test.peer, Headers: test.headers}, []netip.Addr{us})
			if got != test.want || !slices.Equal(added, test.added) {
				t.Errorf("got %s, added %v; want %s, %v", got, added, test.want, test.added)
			}
		})
	}
}

// A request target in another form reveals a proxy. The HTTP version belongs to one connection and reveals nothing.
func TestGradeByRequestLine(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"GET /echo?n=7 HTTP/1.1":             Elite,
		"GET /echo?n=7 HTTP/1.0":             Elite,
		"GET http://judge/echo?n=7 HTTP/1.1": Anonymous,
		"GET /echo?n=7&for=1.2.3.4 HTTP/1.1": Transparent,
	} {
		through := &Echo{Nonce: "7", Line: line, Peer: netip.MustParseAddr("9.9.9.9"), Headers: direct()}
		got, added := grade(&Echo{Nonce: "3", Line: "GET /echo?n=3 HTTP/1.1", Headers: direct()}, through, []netip.Addr{netip.MustParseAddr("1.2.3.4")})
		if got != want || (len(added) > 0) != (want != Elite) {
			t.Errorf("%s: got %s, added %v; want %s", line, got, added, want)
		}
	}
}

// Headers that a reverse proxy of the judge adds to every request do not reveal a proxy, unless they contain our
// address.
func TestGradeIgnoresBaselineHeaders(t *testing.T) {
	t.Parallel()
	us := netip.MustParseAddr("1.2.3.4")
	for value, want := range map[string]string{"ray-2": Elite, "ray-1": Elite, "1.2.3.4": Transparent} {
		baseline := &Echo{Headers: append(direct(), [2]string{"Cf-Ray", "ray-1"})}
		through := &Echo{Peer: netip.MustParseAddr("9.9.9.9"), Headers: append(direct(), [2]string{"Cf-Ray", value})}
		if got, added := grade(baseline, through, []netip.Addr{us}); got != want {
			t.Errorf("%s: got %s, added %v; want %s", value, got, added, want)
		}
	}
}

func TestSameNetwork(t *testing.T) {
	t.Parallel()
	real := []netip.Addr{netip.MustParseAddr("1.2.3.4"), netip.MustParseAddr("2001:db8:1:2::7")}
	for exit, want := range map[string]bool{
		"1.2.3.200": true, "1.2.4.4": false, "11.2.3.4": false, "2001:db8:1:ffff::1": true, "2001:db8:2::1": false, "8.8.8.8": false,
	} {
		if got := sameNetwork(netip.MustParseAddr(exit), real); got != want {
			t.Errorf("%s: got %t want %t", exit, got, want)
		}
	}
}

// FuzzJudge checks that only responses signed with the judge's key are accepted.
func FuzzJudge(f *testing.F) {
	const nonce = "n0nce"
	p := &Prober{}
	p.cfg.Key = "the key of the judge"
	good, err := json.Marshal(Echo{Nonce: nonce, Peer: netip.MustParseAddr("192.0.2.1"), Line: "GET / HTTP/1.1"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"echo": ` + string(good) + `, "mac": "` + sign("another key", good) + `"}`))
	f.Add([]byte(`{"echo": {"nonce":"n0nce"}, "mac": "00"}`))
	f.Add([]byte(`<b>"nonce":"n0nce"</b>`))
	f.Add([]byte(`{"echo": null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if strings.Contains(string(body), sign(p.cfg.Key, good)) {
			return
		}
		for _, truncated := range []bool{false, true} {
			if echo, err := p.verifyEcho(&reply{status: 200, body: body, truncated: truncated}, nonce); err == nil {
				t.Errorf("%q passes as %+v", body, echo)
			}
		}
	})
}
