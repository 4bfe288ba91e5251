package main

import (
	"strings"
	"testing"

	"muster/proxies/probe"
)

// A judge that others can reach warns when its TLS is not on port 443; one on loopback never does.
func TestJudgeWarnsOfTLSOnAPortThatProxiesRefuse(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		server *probe.JudgeServer
		port   string
		want   string
	}{
		"loopback":           {&probe.JudgeServer{URLs: []string{"http://127.0.0.1:80"}, TLSURL: "https://127.0.0.1:40001"}, "", ""},
		"another port":       {&probe.JudgeServer{URLs: []string{"http://[::]:80"}, TLSURL: "https://[::]:40001"}, "", "TLS is on port 40001"},
		"one of two outside": {&probe.JudgeServer{URLs: []string{"http://127.0.0.1:80", "http://8.8.8.8:80"}, TLSURL: "https://127.0.0.1:40001"}, "", "TLS is on port 40001"},
		"443":                {&probe.JudgeServer{URLs: []string{"http://8.8.8.8:80"}, TLSURL: "https://8.8.8.8:443"}, "", ""},
		"443 is forwarded":   {&probe.JudgeServer{URLs: []string{"http://8.8.8.8:80"}, TLSURL: "https://8.8.8.8:8443"}, "443", ""},
		"other is forwarded": {&probe.JudgeServer{URLs: []string{"http://8.8.8.8:80"}, TLSURL: "https://8.8.8.8:443"}, "444", "TLS is on port 444"},
		"none":               {&probe.JudgeServer{URLs: []string{"http://8.8.8.8:80"}}, "", "no TLS"},
	} {
		if got := tlsWarning(test.server, test.port); (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: got %q, want …%s…", name, got, test.want)
		}
	}
}
