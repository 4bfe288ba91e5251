package source

import (
	"strings"
	"testing"
)

// FuzzGateway checks that errors of the gateway parser do not contain the password, and that only literal
// placeholders are replaced.
func FuzzGateway(f *testing.F) {
	for _, s := range []string{"http://u-{country}:", "http://${USER}:", "socks5://:", "ftp://u:", "http://{session}", "://", "http://@:"} {
		f.Add(s, "@gate.example:31112")
		f.Add(s, "@h:{session}")
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		const password = "s3cr3tw0rd"
		text := before + password + after
		g, err := parseGateway(text)
		if err != nil {
			if strings.Contains(err.Error(), password) {
				t.Errorf("%q: the error is %v", text, err)
			}
			return
		}
		if g.host == "" || g.scheme == "" || !strings.HasSuffix(text, g.host+":"+g.port) {
			t.Errorf("%q: got %q, %q, %q", text, g.scheme, g.host, g.port)
		}
	})
}

// FuzzCandidate checks that a candidate is parsed again from its URL, and that its string does not contain the
// password.
func FuzzCandidate(f *testing.F) {
	for _, s := range []string{"1.2.3.4:80", "socks5://u:p@h.example:1", "http://u%40:%2F@[2001:db8::1]:8080", "8.8.8.8:1:user:pass", "https://h:1", "u:p:8.8.8.8:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if strings.ContainsAny(line, "\n\r") {
			return
		}
		parsed, err := Parse(strings.NewReader(line), Options{Max: 10})
		if err != nil {
			return
		}
		for _, c := range parsed.Candidates {
			if len(c.Password) > 8 && !strings.Contains(c.Address()+c.Username, c.Password) && strings.Contains(c.String()+c.GoString(), c.Password) {
				t.Errorf("%q: the string is %s", line, c)
			}
			if strings.ContainsAny(c.Username+c.Password, " \t\x00<>\"'`|,;") { // these characters terminate a URL in text
				continue
			}
			again, err := Parse(strings.NewReader(c.URL().String()), Options{Max: 10})
			if err != nil || len(again.Candidates) != 1 {
				t.Errorf("%q: %q is read as %v, %v", line, c.URL(), again.Candidates, err)
				continue
			}
			got := again.Candidates[0]
			if got.Address() != c.Address() || got.Username != c.Username || got.Password != c.Password {
				t.Errorf("%q: wrote %#v, read %#v from %q", line, c.URL().String(), got.URL().String(), line)
			}
		}
	})
}
