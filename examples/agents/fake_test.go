package agents_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// call is a request of an agent.
type call struct {
	method, path string
	body         map[string]any
}

// fake is an API with the assignments of a test. Its methods are safe for concurrent use.
type fake struct {
	url string

	mu      sync.Mutex // guards the rest
	lease   float64    // lease_seconds
	work    []map[string]any
	calls   []call
	away    int                                    // number of next requests that get 503
	respond func(c call) (status int, body string) // overrides responses to calls of assignments, unless status is 0
}

const agentID = "agent-1"

func newFake(t *testing.T, work ...map[string]any) *fake {
	f := &fake{work: work, lease: 30}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	f.url = server.URL
	return f
}

// set changes the fake under its lock.
func (f *fake) set(change func(f *fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// respondWith overrides the responses to calls of assignments.
func (f *fake) respondWith(respond func(c call) (status int, body string)) {
	f.set(func(f *fake) { f.respond = respond })
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := call{method: r.Method, path: r.URL.Path}
	if err := json.NewDecoder(r.Body).Decode(&c.body); err != nil && r.ContentLength > 0 {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	f.calls = append(f.calls, c)
	away := f.away > 0
	f.away--
	override, lease := f.respond, f.lease
	f.mu.Unlock()
	if away {
		http.Error(w, "away", http.StatusServiceUnavailable)
		return
	}
	if override != nil {
		if status, body := override(c); status != 0 {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
			return
		}
	}
	var body any = map[string]any{}
	switch {
	case r.URL.Path == "/v1/agents":
		w.WriteHeader(http.StatusCreated)
		body = map[string]any{"id": agentID, "secret": secret, "heartbeat_seconds": 15, "lease_seconds": lease}
	case strings.HasSuffix(r.URL.Path, "/lease"):
		body = map[string]any{"assignments": f.next(r)}
	case strings.HasSuffix(r.URL.Path, "/document"):
		_, _ = w.Write([]byte(document))
		return
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
		return
	}
	_ = json.NewEncoder(w).Encode(body)
}

// next returns the next assignment, or none after a timeout.
func (f *fake) next(r *http.Request) []map[string]any {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.work) > 0 {
		next := f.work[:1]
		f.work = f.work[1:]
		return next
	}
	f.mu.Unlock()
	select {
	case <-r.Context().Done():
	case <-time.After(200 * time.Millisecond):
	}
	f.mu.Lock()
	return []map[string]any{}
}

// seen returns the calls whose path has a suffix.
func (f *fake) seen(method, ending string) []call {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []call
	for _, c := range f.calls {
		if c.method == method && strings.HasSuffix(c.path, ending) {
			found = append(found, c)
		}
	}
	return found
}
