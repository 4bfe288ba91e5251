package client_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"muster/internal/testutil"
	"muster/orchestrator/api/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve returns a client of a server with a handler.
func serve(t *testing.T, h http.HandlerFunc) *client.Client {
	t.Helper()
	server := testutil.Serve(t, h)
	c := testutil.Must(client.New(client.Config{URL: server.URL, Key: "secret-key", Transport: server.Client().Transport}))(t)
	return c
}

func respond(w http.ResponseWriter, status int, media, body string) {
	w.Header().Set("Content-Type", media)
	w.WriteHeader(status)
	fmt.Fprint(w, body)
}

func TestServersThatAreNoOrchestrator(t *testing.T) {
	t.Parallel()
	var leaked []string
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		leaked = append(leaked, r.Header.Get("Authorization"))
	}))
	defer other.Close()
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"HTML":                {func(w http.ResponseWriter, _ *http.Request) { respond(w, 200, "text/html", "<p>Hello") }, "does not respond like an orchestrator: status 200, content type \"text/html\""},
		"HTML with an error":  {func(w http.ResponseWriter, _ *http.Request) { respond(w, 404, "text/html", "<p>Hello") }, "status 404"},
		"an empty response":   {func(http.ResponseWriter, *http.Request) {}, "does not respond like an orchestrator"},
		"no response":         {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "call the orchestrator: "},
		"JSON that is cut":    {func(w http.ResponseWriter, _ *http.Request) { respond(w, 200, "application/json", `{"data": [`) }, "decode the response"},
		"a redirect":          {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) }, "redirects to " + other.URL},
		"an error as no JSON": {func(w http.ResponseWriter, _ *http.Request) { respond(w, 500, "application/problem+json", "oops") }, "decode the error"},
	} {
		if _, err := client.All(t.Context(), serve(t, c.handler), client.ListKeys, client.None{}, 0); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	if len(leaked) > 0 {
		t.Errorf("another host got the requests %q", leaked)
	}
}

func TestProblemsAreErrors(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret-key" {
			t.Errorf("got the credential %q", r.Header.Get("Authorization"))
		}
		w.Header().Set("X-Request-Id", "r1")
		respond(w, 404, "application/problem+json", `{"status": 404, "code": "key_not_found", "detail": "no key ci"}`)
	})
	_, err := client.RevokeKey.Call(t.Context(), c, client.KeyPath{ID: "ci"})
	p, ok := errors.AsType[*client.Problem](err)
	if !ok || p.Code != "key_not_found" || p.Status != 404 || p.RequestID != "r1" || p.Error() != "no key ci" {
		t.Errorf("got %#v", err)
	}
}

func TestListsReadAllPages(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		page := map[string]string{
			"":   `{"data": [{"caller": "a"}, {"caller": "b"}], "next": "c2"}`,
			"c2": `{"data": [], "next": "c3"}`,
			"c3": `{"data": [{"caller": "c"}]}`,
		}[r.URL.Query().Get("cursor")]
		respond(w, 200, "application/json", page)
	})
	for limit, want := range map[int]string{0: "abc", 1: "a", 2: "ab", 3: "abc", 9: "abc"} {
		list, err := client.All(t.Context(), c, client.ListAudit, client.AuditFilter{}, limit)
		got := ""
		for _, e := range list {
			got += e.Caller
		}
		if err != nil || got != want {
			t.Errorf("limit %d: got %q, %v, want %q", limit, got, err, want)
		}
	}
}

func TestURLsOfServers(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "localhost:8000", "ftp://x", "http://", "http://x/ui/", "http://x?a=b", "http://user:pass@x"} {
		if _, err := client.New(client.Config{URL: bad}); err == nil || strings.Contains(err.Error(), "pass@") {
			t.Errorf("%q: got %v, want an error without the password", bad, err)
		}
	}
	if c, err := client.New(client.Config{URL: "https://muster.example/"}); err != nil || c.URL() != "https://muster.example" {
		t.Errorf("got %v, %v", c, err)
	}
}

func TestHandlerStreamsResponses(t *testing.T) {
	t.Parallel()
	more := make(chan struct{})
	ended := make(chan struct{})
	transport := client.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		fmt.Fprint(w, "first")
		<-more
		fmt.Fprint(w, " second")
		<-r.Context().Done()
	}))
	req := testutil.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/x", nil))(t)
	res := testutil.Must((&http.Client{Transport: transport}).Do(req))(t)
	buf := make([]byte, 5)
	if n, err := res.Body.Read(buf); err != nil || string(buf[:n]) != "first" {
		t.Errorf("got %q, %v before the handler has ended", buf[:n], err)
	}
	close(more)
	if n, err := res.Body.Read(buf); err != nil || string(buf[:n]) != " seco" {
		t.Errorf("got %q, %v", buf[:n], err)
	}
	_ = res.Body.Close()
	select {
	case <-ended:
	default:
		t.Error("the body was closed before the handler ended, which may still have to log the request")
	}
}
