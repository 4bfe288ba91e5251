package probe

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
)

// FuzzPublicJudge wants a page of a public judge to name a peer, or to be none.
func FuzzPublicJudge(f *testing.F) {
	f.Add([]byte(`{"headers": {"Via": "1.1 x", "X-Forwarded-For": "192.0.2.1"}, "origin": "192.0.2.1, 198.51.100.7"}`))
	f.Add([]byte("<pre>REMOTE_ADDR = 192.0.2.1\nHTTP_VIA = 1.1 &lt;x&gt;\n</pre>"))
	f.Add([]byte("REMOTE_ADDR = x\n"))
	f.Add([]byte(`{"origin": 1}`))
	own := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	f.Fuzz(func(t *testing.T, page []byte) {
		for _, read := range []func([]byte) *Echo{readHTTPBin, readAzenv} {
			echo := read(page)
			if echo == nil {
				continue
			}
			if !echo.Peer.IsValid() {
				t.Fatalf("%q has the peer %v", page, echo.Peer)
			}
			kind, added := grade(&Echo{}, echo, own)
			if kind == "" || kind == Elite && echo.Peer == own[0] {
				t.Errorf("%q is %q with %v", page, kind, added)
			}
		}
	})
}

// FuzzJudge wants no answer to pass as the judge's that is not signed with its key.
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

// FuzzHead wants the head of a request to be what came, line by line.
func FuzzHead(f *testing.F) {
	f.Add([]byte("GET /echo HTTP/1.1\r\nHost: a\r\nX: \r\n\r\nbody"))
	f.Add([]byte("\n\n"))
	f.Add([]byte("GET / HTTP/1.1\nno colon\n\n"))
	f.Fuzz(func(t *testing.T, seen []byte) {
		line, headers := (&rawConn{seen: seen}).head()
		if strings.Contains(line, "\n") || headers == nil && line != "" || len(headers) > strings.Count(string(seen), "\n") {
			t.Errorf("%q: got %q and %q", seen, line, headers)
		}
		for _, h := range headers {
			if strings.ContainsAny(h[0]+h[1], "\n") {
				t.Errorf("%q: got the header %q", seen, h)
			}
		}
	})
}
