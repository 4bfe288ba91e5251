package probe

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
)

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

// FuzzHead checks that the parsed head equals the received bytes line by line.
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
