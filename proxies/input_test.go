package proxies

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/proxies/probe"
	"muster/proxies/source"
	"muster/tasks"
)

// listServer serves a list of proxies and records the requests.
func listServer(t *testing.T) (address string, asked chan *http.Request) {
	t.Helper()
	asked = make(chan *http.Request, 20)
	server := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r
		_, _ = w.Write([]byte("http://9.9.9.1:8080\n"))
	}))
	return server.URL, asked
}

// A task cannot make its worker read its environment or files that are not in its settings.
func TestFetchInputHasNoAccessToWorker(t *testing.T) {
	t.Parallel()
	at, asked := listServer(t)
	f := newFleet(t, probe.Config{})
	f.getenv["PGPASSWORD"] = "hunter2"
	file := writeFile(t, "http://9.9.9.7:8080")
	for name, in := range map[string]FetchInput{
		"variable in the URL":         {Source: source.Source{URL: at + "/?k=${PGPASSWORD}"}},
		"variable as the host":        {Source: source.Source{URL: "${PGPASSWORD}"}},
		"variable in a header":        {Source: source.Source{URL: at, Headers: map[string]string{"X-Key": "${PGPASSWORD}"}}},
		"variable in auth":            {Source: source.Source{URL: at, Auth: "me:${PGPASSWORD}"}},
		"path":                        {Source: source.Source{URL: file}},
		"file URL":                    {Source: source.Source{URL: "file://" + file}},
		"file URL in capitals":        {Source: source.Source{URL: "FILE://" + file}},
		"standard input":              {Source: source.Source{URL: "-"}},
		"path with Configured":        {Source: source.Source{URL: file}, Configured: true},
		"path with a configured name": {Source: source.Source{Name: "paid", URL: file}, Configured: true},
		"another URL's credentials":   {Source: source.Source{Name: "paid", URL: at}, Configured: true},
	} {
		run := testutil.Must(Fetch.S(in).Send(t.Context(), f.client))(t)
		list, err := run.Wait(t.Context())
		failure, ok := errors.AsType[*tasks.Failure](err)
		if !ok || !strings.Contains(failure.Message, "proxies.sources") {
			t.Errorf("%s: got %v, %v, want an error that names proxies.sources", name, list, err)
		} else if strings.Contains(failure.Message, "hunter2") {
			t.Errorf("%s: the error contains the secret: %s", name, failure.Message)
		}
	}
	if len(asked) > 0 {
		t.Errorf("got a request for %s, want none", (<-asked).URL)
	}
}

// A source of the worker's settings is read with their secrets, which are not stored in Redis.
func TestConfiguredSourceUsesWorkerSecrets(t *testing.T) {
	t.Parallel()
	at, asked := listServer(t)
	paid := source.Source{Name: "paid", URL: at + "/list?key=${KEY}", Headers: map[string]string{"X-Token": "plain-secret"}, Auth: "me:${KEY}"}
	login := source.Source{URL: strings.Replace(at, "://", "://me:letmein@", 1)}
	f := newFleet(t, probe.Config{}, paid, login)
	f.getenv["KEY"] = "hunter2"
	for _, from := range []source.Source{paid, login, {URL: at + "/open"}} {
		in := f.host.input(t.Context(), from)
		if len(in.Headers) > 0 || in.Auth != "" || strings.Contains(in.URL, "hunter2") || strings.Contains(in.URL, "letmein") {
			t.Errorf("got %+v, want an input without secrets", in)
		}
		run := testutil.Must(Fetch.S(in).Send(t.Context(), f.client))(t)
		list, err := run.Wait(t.Context())
		if err != nil || len(list.Candidates) != 1 || list.Source != from.Label() {
			t.Errorf("got %+v, %v, want one candidate of %s", list, err, from.Label())
		}
	}
	r := <-asked
	if user, password, _ := r.BasicAuth(); r.URL.RawQuery != (url.Values{"key": {"hunter2"}}).Encode() || r.Header.Get("X-Token") != "plain-secret" || user != "me" || password != "hunter2" {
		t.Errorf("got %s with %v, want the secrets of the settings", r.URL, r.Header)
	}
	if user, password, _ := (<-asked).BasicAuth(); user != "me" || password != "letmein" {
		t.Errorf("got %s:%s, want the credentials of the URL", user, password)
	}
}

// Only the name of a gateway is sent. Its sessions are separate members.
func TestRefreshOfAGateway(t *testing.T) {
	t.Parallel()
	from := source.Source{Name: "paid", Gateway: "http://me:hunter2_{session}@gate.example.org:7000", Sessions: 2}
	f := newFleet(t, probe.Config{}, from)
	in := f.host.input(t.Context(), from)
	if text, err := json.Marshal(in); err != nil || !in.Configured || strings.Contains(string(text), "hunter2") {
		t.Errorf("got %s, %v, want the name only", text, err)
	}
	run := testutil.Must(Fetch.S(in).Send(t.Context(), f.client))(t)
	list, err := run.Wait(t.Context())
	if err != nil || len(list.Candidates) != 2 {
		t.Fatalf("got %+v, %v, want two sessions", list, err)
	}
	for i, c := range list.Candidates {
		p := proxyOf(probe.Result{Candidate: c, Protocol: "http", Alive: true})
		if want := fmt.Sprintf("~%d", i+1); !strings.HasSuffix(p.ID, want) || p.Password != c.Password || candidateID(p.Candidate) != p.ID {
			t.Errorf("got %s, want an id that ends in %s, after a recheck too", p.ID, want)
		}
	}
}

// A file is read by the process that starts the refresh.
func TestRefreshReadsFilesLocally(t *testing.T) {
	t.Parallel()
	f := newFleet(t, probe.Config{})
	file := writeFile(t, "http://9.9.9.7:8080\nhttp://9.9.9.8:8080")
	in := f.host.input(t.Context(), source.Source{URL: file})
	if in.URL != "" || in.List == nil {
		t.Fatalf("got %+v, want the list instead of its path", in)
	}
	run := testutil.Must(Fetch.S(in).Send(t.Context(), f.client))(t)
	list, err := run.Wait(t.Context())
	if err != nil || len(list.Candidates) != 2 || list.Source != file {
		t.Errorf("got %+v, %v, want the two of %s", list, err, filepath.Base(file))
	}
}
