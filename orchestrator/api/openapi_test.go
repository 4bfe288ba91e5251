package api

import (
	"context"
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"muster/internal/httpproblem"
	"muster/internal/limit"
	"muster/internal/testutil"
	"muster/orchestrator/access"
	"muster/orchestrator/health"
	"muster/proxies"
	"muster/proxies/source"
	"muster/sites"
	tasksapi "muster/tasks/api"
	"muster/tasks/workqueue"
)

var update = flag.Bool("update", false, "write docs/reference/openapi.json")

// everything returns a config in which nothing is left out.
func everything(t *testing.T) Config {
	t.Helper()
	cfg := served(t)
	s, err := sites.NewService(nil, sites.Config{Client: cfg.Client, OutDir: t.TempDir()})
	testutil.Ok(t, err)
	cfg.Proxies, err = proxies.NewService(proxies.Config{
		Pool: proxies.NewPool(proxies.PoolConfig{Redis: cfg.Client.Redis()}), Client: cfg.Client,
		Settings: func() proxies.Settings { return proxies.Settings{Sources: source.Public(), CanCheck: true} },
	})
	testutil.Ok(t, err)
	t.Cleanup(func() { _ = s.Close() })
	cfg.Sites, cfg.Metrics = s, http.NotFoundHandler()
	cfg.Check = func(context.Context) health.Report { return health.Report{Status: health.OK} }
	cfg.Queue = func(name string) *workqueue.Queue { return workqueue.New(cfg.Client.Redis(), name, workqueue.Config{}) }
	if _, err := cfg.Queue("default").Enqueue(t.Context(), workqueue.Item{ID: "a"}); err != nil { // a queue exists with its first item
		t.Fatal(err)
	}
	agents := limit.NewBreaker(cfg.Client.Redis(), limit.BreakerConfig{Namespace: "muster:agents"})
	cfg.Breakers = &Breakers{Hosts: limit.NewBreaker(cfg.Client.Redis(), limit.BreakerConfig{}), Agents: agents}
	cfg.Keys, cfg.Audit = access.NewKeys(cfg.Client.Redis()), access.NewAudit(cfg.Client.Redis())
	if _, _, err := cfg.Keys.Create(t.Context(), access.NewKey{Name: "some", Role: access.Viewer}); err != nil { // that a request can name
		t.Fatal(err)
	}
	return cfg
}

func spec(t *testing.T) []byte {
	t.Helper()
	w := ask(t, handler(t, everything(t)), "GET", "/openapi.json")
	if w.Code != http.StatusOK {
		t.Fatalf("/openapi.json: %d %s", w.Code, w.Body)
	}
	return w.Body.Bytes()
}

// docs/reference/openapi.json is the description. go generate writes it.
func TestOpenAPIGolden(t *testing.T) {
	t.Parallel()
	testutil.Page(t, "../../docs/reference/openapi.json", spec(t), *update, "go generate ./orchestrator/api")
}

// openapi is the part of a description that the tests read.
type openapi struct {
	OpenAPI string
	Paths   map[string]map[string]operation
	doc     any
	has     sample // for values of requests
}

type operation struct {
	OperationID string
	Summary     string
	Tags        []string
	Parameters  []parameter
	RequestBody *struct {
		Required bool
		Content  map[string]struct{ Schema map[string]any }
	}
	Responses map[string]any
	Security  []map[string][]string
	Roles     []access.Role `json:"x-role"`
}

type parameter struct {
	Name, In string
	Required bool
	Schema   map[string]any
}

func readSpec(t *testing.T) openapi {
	t.Helper()
	var o openapi
	data := spec(t)
	testutil.Ok(t, json.Unmarshal(data, &o))
	testutil.Ok(t, json.Unmarshal(data, &o.doc))
	return o
}

// resolve returns the target of a JSON pointer such as #/components/schemas/Job, or nil.
func (o openapi) resolve(ref string) any {
	at := o.doc
	for _, part := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
		m, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = m[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
	}
	return at
}

// The unversioned operations are exactly the eleven fixed ones.
func TestUnversionedOperations(t *testing.T) {
	t.Parallel()
	var got []string
	for path, methods := range readSpec(t).Paths {
		for method := range methods {
			if !strings.HasPrefix(path, "/v1/") {
				got = append(got, strings.ToUpper(method)+" "+path)
			}
		}
	}
	slices.Sort(got)
	want := []string{
		"DELETE /jobs/{id}", "GET /agents/health", "GET /health", "GET /jobs", "GET /jobs/stuck", "GET /jobs/{id}", "GET /jobs/{id}/progress",
		"GET /jobs/{id}/report", "GET /metrics", "GET /ready", "GET /stats/daily", "GET /status", "POST /jobs", "POST /jobs/{id}/cancel",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCodesOfProblemsAreDocumented(t *testing.T) {
	t.Parallel()
	page := testutil.Must(os.ReadFile("../../docs/reference/api.md"))(t)
	var codes []string
	for _, known := range serviceProblems {
		codes = append(codes, known.Code)
	}
	codes = append(append(codes, tasksapi.Codes()...), "invalid_definition", "scrape_running", "proxy_not_found") // set without a sentinel error
	for status := 400; status < 600; status++ {
		codes = append(codes, httpproblem.New(status, "").Code)
	}
	for _, code := range codes {
		if !strings.Contains(string(page), "`"+code+"`") {
			t.Errorf("%s is not in docs/reference/api.md", code)
		}
	}
}
