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
