package layers

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// listeners are the files that open or serve a listener, and what protects it.
var listeners = map[string]string{
	"orchestrator/api/api.go":                       "HTTP interface, pages and metrics: keys beyond loopback, Host check, limits (guard.go)",
	"proxies/gateway/gateway.go":                    "proxies serve: keys beyond loopback, limits of heads, connections and time",
	"proxies/gateway/web.go":                        "the HTTP side of proxies/gateway/gateway.go",
	"proxies/probe/judge.go":                        "judge: for any client; beyond loopback only with a key, which signs its replies",
	"orchestrator/redisd/port.go":                   "finds a free port on loopback and closes it again",
	"orchestrator/demo/world.go":                    "the world of the demo: loopback only",
	"proxies/proxytest/proxy.go":                    "for tests and the demo: loopback only",
	"examples/agents/goagent/main.go":               "an example: loopback unless AGENT_LISTEN is set; work must be signed",
	"tasks/redistest/process.go":                    "for tests: a free port on loopback",
	"internal/testutil/holdport_other.go":           "for tests: holds a port on loopback",
	"orchestrator/tracing/tracingtest/collector.go": "receives the spans of tests",
}

var listens = regexp.MustCompile(`\bnet\.Listen\w*\(|\bListenConfig\b|\bListenAndServe|\bhttp\.Serve\w*\(|\btls\.Listen\(|\bsyscall\.Listen\(|&?http\.Server\{|httptest\.New\w*Server`)

// Every listener of the program is in listeners.
func TestListeners(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, "../../"))
		if strings.HasPrefix(name, "scripts/") || strings.HasPrefix(name, "dist/") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		at := listens.FindString(string(src))
		if strings.HasPrefix(name, "examples/") && strings.HasPrefix(at, "httptest.") {
			return nil // a service outside, on loopback
		}
		if at != "" {
			found[name] = true
			if listeners[name] == "" {
				t.Errorf("%s has %s: serve through orchestrator/api, or add it to listeners", name, at)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range listeners {
		if !found[name] {
			t.Errorf("%s opens no listener: remove it from listeners", name)
		}
	}
}
