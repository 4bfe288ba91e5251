package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/orchestrator/access"
	"muster/tasks"
)

// callers maps names of callers to their credentials: one per role, and none, wrong, expired and revoked.
type callers map[string]string

// closed gives a config keys, so that each request needs one.
func closed(t *testing.T, cfg *Config) callers {
	t.Helper()
	keys := access.NewKeys(cfg.Client.Redis())
	all := callers{"none": "", "wrong": "muster_000000000000_" + strings.Repeat("A", 43), "guessed": "a key that is long enough for testz"}
	for _, role := range append([]string{"expired", "revoked"}, "viewer", "operator", "admin", "agent") {
		n := access.NewKey{Name: role, Role: access.Role(role)}
		if role == "expired" || role == "revoked" {
			n.Role, n.Expires = access.Admin, time.Now().Add(20*time.Millisecond)
		}
		if role == "revoked" {
			n.Expires = time.Time{}
		}
		key, text, err := keys.Create(t.Context(), n)
		testutil.Ok(t, err)
		if role == "revoked" {
			testutil.Must(keys.Revoke(t.Context(), key.ID))(t)
		}
		all[role] = text
		if role == "expired" {
			<-time.After(time.Until(key.Expires))
		}
	}
	g := testutil.Must(access.NewGate([]string{"a key that is long enough for tests"}, keys, nil))(t)
	cfg.Gate = g
	return all
}

func bearer(key string) func(*http.Request) {
	return func(r *http.Request) {
		if key != "" {
			r.Header.Set("Authorization", "Bearer "+key)
		}
	}
}

// headOnly is a recorder that ends the request as soon as the response header is written.
type headOnly struct {
	*httptest.ResponseRecorder
	end context.CancelFunc
}

func (w *headOnly) WriteHeader(code int) { w.ResponseRecorder.WriteHeader(code); w.end() }

// addresses numbers the addresses that uniqueAddress assigns.
var addresses atomic.Uint32

// uniqueAddress gives a request a new client address, so that the limit of failed logins does not apply.
func uniqueAddress(r *http.Request) {
	n := addresses.Add(1)
	r.RemoteAddr = fmt.Sprintf("10.%d.%d.%d:1", n>>16&255, n>>8&255, n&255)
}

// sendAs sends a trial with a key and returns the status.
func (tr *trial) sendAs(t *testing.T, h http.Handler, key string) (int, string) {
	t.Helper()
	if key != "" {
		tr.header.Set("Authorization", "Bearer "+key)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		uniqueAddress(r)
		if strings.HasSuffix(r.URL.Path, "/events") || strings.HasSuffix(r.URL.Path, "/output") {
			w, r = &headOnly{w.(*httptest.ResponseRecorder), cancel}, r.WithContext(ctx)
		}
		h.ServeHTTP(w, r)
	})
	w := tr.send(t, stream)
	return w.Code, w.Body.String()
}

// Each operation of the description requires its roles, for each kind of caller.
func TestEachOperationTakesItsRole(t *testing.T) {
	t.Parallel()
	o := readSpec(t)
	checked := 0
	setup := func() (http.Handler, callers, sample) {
		cfg := everything(t)
		keys := closed(t, &cfg)
		return handler(t, cfg), keys, populate(t, cfg, "")
	}
	reads, readers, read := setup()
	for path, methods := range o.Paths {
		for method, op := range methods {
			h, keys := reads, readers
			o.has = read
			if method != "get" { // it changes the objects
				h, keys, o.has = setup()
			}
			for as, key := range keys {
				request := o.base(method, path, op)
				code, body := request.sendAs(t, h, key)
				role := access.Role(as)
				known := slices.Contains(access.Roles, role)
				want := 200 // or another status of an allowed request: an earlier caller may have deleted its objects
				switch {
				case len(op.Security) == 0, path == "/ready" && key == "":
				case !known:
					want = 401
				case path == "/ready":
				case len(op.Roles) == 0 || !slices.ContainsFunc(op.Roles, role.May):
					want = 403
				}
				got := code
				if code/100 == 2 || code == http.StatusNotFound || code == http.StatusConflict || code == http.StatusPreconditionFailed || code == 403 && !strings.Contains(body, "this takes the role") {
					got = 200
				}
				if got != want {
					t.Errorf("%s %s as %s: got %d %.200s, want %d", method, path, as, code, body, want)
				}
				if want == 403 && (!strings.Contains(body, rolesText(op.Roles)) || !strings.Contains(body, "role "+as)) {
					t.Errorf("%s %s as %s: got %s, want the required role and the role of the caller", method, path, as, body)
				}
				checked++
			}
		}
	}
	if checked < 400 {
		t.Errorf("checked %d, want all operations", checked)
	}
}

// Pages, unknown paths and unknown methods require a role as well.
func TestPagesTakeTheirRole(t *testing.T) {
	t.Parallel()
	cfg := everything(t)
	keys := closed(t, &cfg)
	h, f := handler(t, cfg), populate(t, cfg, "")
	const reads, operates, admins = "viewer operator admin", "operator admin", "admin"
	for request, allowed := range map[string]string{
		"GET /ui/jobs": reads, "GET /ui/jobs/" + f.job + "/items": reads, "GET /ui/jobs/" + f.job + "/item?key=a%2Fb": reads,
		"GET /ui/agents": reads, "GET /ui/agents/" + f.agent: reads, "GET /ui/pipelines": reads,
		"GET /ui/jobs/start": operates, "GET /ui/jobs/" + f.job + "/cancel": operates, "GET /ui/jobs/" + f.job + "/stages/create/end": operates, "GET /ui/agents/" + f.agent + "/drain": operates,
		"GET /": reads, "GET /ui/": reads, "GET /ui/assets/style.css": reads, "GET /ui/jobs/" + f.job: reads, "GET /ui/nothing": reads, "GET /ui/search?q=x": reads,
		"GET /ui/sites": reads, "GET /ui/sites/quotes.toscrape.com": reads, "GET /ui/scrapes": reads, "GET /ui/scrapes/none": reads,
		"GET /ui/sites/quotes.toscrape.com/run": operates, "POST /ui/sites/quotes.toscrape.com/run": operates,
		"POST /ui/sites/quotes.toscrape.com/pause": operates, "POST /ui/sites/quotes.toscrape.com/resume": operates,
		"POST /ui/scrapes/none/cancel": operates, "POST /ui/scrapes/none/retry": operates,
		"GET /ui/proxies": reads, "GET /ui/proxies/sources": reads, "GET /ui/proxies/http:%2F%2F192.0.2.1:80": reads,
		"POST /ui/proxies/refresh": operates, "POST /ui/proxies/recheck": operates, "POST /ui/proxies/http:%2F%2F192.0.2.1:80/ban": operates,
		"POST /ui/proxies/http:%2F%2F192.0.2.1:80/unban": operates, "POST /ui/proxies/http:%2F%2F192.0.2.1:80/recheck": operates,
		"GET /ui/tasks/": reads, "POST /ui/tasks/queues/default/pause": operates,
		"GET /openapi.json": reads, "HEAD /openapi.json": reads, "GET /asynqmon/": reads, "GET /asynqmon/api/queues": reads,
		"POST /asynqmon/api/queues/default:pause": admins, "DELETE /asynqmon/api/queues/default/pending_tasks/t1": admins,
		"GET /nothing": "viewer operator admin agent", "PUT /jobs": "viewer operator admin agent",
	} {
		method, path, _ := strings.Cut(request, " ")
		for as, key := range keys {
			w := ask(t, h, method, path, bearer(key), uniqueAddress)
			known, may := slices.Contains(access.Roles, access.Role(as)), slices.Contains(strings.Fields(allowed), as)
			denied, forbidden := w.Code == http.StatusUnauthorized, w.Code == http.StatusForbidden && strings.Contains(w.Body.String(), "this takes the role")
			if denied == known || forbidden != (known && !may) {
				t.Errorf("%s as %s: got %d %.100s, want it allowed: %v", request, as, w.Code, w.Body, may)
			}
			if denied && w.Header().Get("WWW-Authenticate") == "" {
				t.Errorf("%s as %s: 401 without WWW-Authenticate", request, as)
			}
		}
	}
	for as, readOnly := range map[string]bool{"viewer": true, "operator": true, "admin": false} {
		page := ask(t, h, "GET", "/asynqmon/", bearer(keys[as])).Body.String()
		if got := strings.Contains(page, `FLAG_READ_ONLY="true"`); got != readOnly {
			t.Errorf("asynqmon for %s: read-only %v, want %v", as, got, readOnly)
		}
	}
}

// Each change made on a page requires the role operator; other callers get an error page with status 403.
func TestChangesOfPagesTakeTheRoleOperator(t *testing.T) {
	t.Parallel()
	cfg := everything(t)
	keys, f := closed(t, &cfg), populate(t, cfg, "")
	for _, write := range []bool{true, false} {
		cfg.Write = write
		h := handler(t, cfg)
		for _, path := range []string{
			"/jobs/start", "/jobs/" + f.job + "/cancel", "/jobs/" + f.job + "/retry", "/jobs/" + f.job + "/again", "/jobs/" + f.job + "/delete", "/jobs/" + f.job + "/stages/create/end",
			"/tasks/todo/decide?choice=Reject&item=" + f.job + "%2Fa%2Fb", "/agents/" + f.agent + "/drain", "/agents/" + f.agent + "/undrain", "/agents/" + f.agent + "/remove",
		} {
			for as, key := range keys {
				role := access.Role(as)
				for _, method := range []string{"GET", "POST"} {
					w := ask(t, h, method, "/ui"+path, bearer(key), uniqueAddress)
					// A POST without the token of a form is forbidden to all.
					asked := method == "GET" && write && role.May(access.Operator)
					switch {
					case !slices.Contains(access.Roles, role):
						if w.Code != http.StatusUnauthorized {
							t.Errorf("%s %s as %s: got %d, want 401", method, path, as, w.Code)
						}
					case asked && (w.Code == http.StatusForbidden || w.Code == http.StatusNotFound):
						t.Errorf("%s %s as %s: got %d, want a question", method, path, as, w.Code)
					case !asked && (w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "<h1>Not allowed</h1>")):
						t.Errorf("%s %s as %s: got %d %.200s, want an error page with status 403", method, path, as, w.Code, w.Body)
					}
				}
			}
		}
	}
}

// Changes of pages are in the audit log with the job that they changed.
func TestChangesOfPagesAreAudited(t *testing.T) {
	t.Parallel()
	cfg := everything(t)
	keys := closed(t, &cfg)
	h, f := handler(t, cfg), populate(t, cfg, "")
	token := strings.Repeat("a", 32)
	w := post(t, h, "POST", "/ui/jobs/"+f.job+"/cancel", "muster_form="+token, bearer(keys["operator"]), header("Content-Type", "application/x-www-form-urlencoded"), header("Cookie", "muster_form="+token))
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/ui/jobs/"+f.job {
		t.Fatalf("got %d to %q %s, want the page of the job", w.Code, w.Header().Get("Location"), w.Body)
	}
	page, err := cfg.Audit.List(t.Context(), access.AuditFilter{Limit: 10})
	if err != nil || len(page.Entries) != 1 || page.Entries[0].Path != "/ui/jobs/"+f.job+"/cancel" || page.Entries[0].Operation != "POST /ui/jobs/{job}/cancel" || page.Entries[0].Caller != "operator" {
		t.Errorf("got %+v, %v, want the cancel of the job by operator", page.Entries, err)
	}
}

// An agent reads the jobs that it works on, and no others.
func TestAgentReadsTheJobsOfItsAssignments(t *testing.T) {
	t.Parallel()
	cfg := everything(t)
	keys := closed(t, &cfg)
	h, f := handler(t, cfg), populate(t, cfg, "key:agent")
	for _, rest := range []string{"", "/items", "/items/a%2Fb", "/document"} {
		for id, want := range map[string]int{f.job: 200, "other": 403, noJob: 403} {
			if w := ask(t, h, "GET", "/v1/jobs/"+id+rest, bearer(keys["agent"])); w.Code != want {
				t.Errorf("GET /v1/jobs/%s%s as agent: got %d %s, want %d", id, rest, w.Code, w.Body, want)
			}
		}
		if w := ask(t, h, "GET", "/v1/jobs/"+noJob+rest, bearer(keys["viewer"])); w.Code == 403 {
			t.Errorf("GET /v1/jobs/%s%s as viewer: got %d %s", noJob, rest, w.Code, w.Body)
		}
	}
}

// unread fails the test when a body is read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body is read")
	return 0, io.EOF
}

// A large body costs memory and time, so it is read only for an assignment of the caller.
func TestBodyIsNotReadForAnotherAssignment(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	keys := closed(t, &cfg)
	h, f := handler(t, cfg), populate(t, cfg, "key:other")
	for id, want := range map[string]int{"none": 404, f.assignment: 403} {
		for _, call := range []string{"heartbeat", "items", "complete", "fail", "release"} {
			r := httptest.NewRequestWithContext(t.Context(), "POST", "http://localhost/v1/assignments/"+id+"/"+call, unread{t})
			bearer(keys["agent"])(r)
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("%s of %s: got %d %s, want %d", call, id, w.Code, w.Body, want)
			}
		}
	}
}

// An agent acts only for agents that its key registered, and for none without an owner; other roles act for all agents.
func TestAgentBelongsToTheKeyThatRegisteredIt(t *testing.T) {
	t.Parallel()
	for owner, may := range map[string]bool{"": false, "key:agent": true, "key:other": false, "token:agent": false} {
		cfg := served(t)
		keys := closed(t, &cfg)
		h, f := handler(t, cfg), populate(t, cfg, owner)
		lease := fmt.Sprintf(`"agent": %q, "fence": %d`, f.agent, f.fence)
		for _, c := range [][3]string{
			{"POST", "/v1/agents/" + f.agent + "/heartbeat", `{}`}, {"POST", "/v1/agents/" + f.agent + "/lease", `{}`},
			{"POST", "/v1/assignments/" + f.assignment + "/heartbeat", `{` + lease + `}`},
			{"POST", "/v1/assignments/" + f.assignment + "/items", `{` + lease + `, "items": [{"key": "k", "text": "t"}]}`},
			{"POST", "/v1/assignments/" + f.assignment + "/fail", `{` + lease + `, "error": "x"}`},
			{"POST", "/v1/assignments/" + f.assignment + "/release", `{` + lease + `}`},
			{"POST", "/v1/assignments/" + f.assignment + "/complete", `{` + lease + `}`},
			{"DELETE", "/v1/agents/" + f.agent, ""},
		} {
			for _, as := range []string{"agent", "operator"} {
				w := post(t, h, c[0], c[1], c[2], bearer(keys[as]))
				if forbidden := w.Code == http.StatusForbidden; forbidden != (as == "agent" && !may) || w.Code == http.StatusBadRequest || w.Code >= 500 {
					t.Errorf("%v of %q as %s: got %d %s", c, owner, as, w.Code, w.Body)
				}
			}
		}
	}
	cfg := served(t)
	keys := closed(t, &cfg)
	h := handler(t, cfg)
	for as, want := range map[string]string{"agent": "key:agent", "operator": "", "admin": ""} {
		w := post(t, h, "POST", "/v1/agents", `{"name": "of-`+as+`", "roles": ["creator"]}`, bearer(keys[as]))
		id, _ := decode(t, w)["id"].(string)
		if owner, err := cfg.Agents.Owner(t.Context(), id); w.Code != http.StatusCreated || err != nil || owner != want {
			t.Errorf("registered as %s: got %d, owner %q, %v, want %q", as, w.Code, owner, err, want)
		}
	}
}

// from is a request from an address.
func from(address string) func(*http.Request) {
	return func(r *http.Request) { r.RemoteAddr = address }
}

// Requests are limited per key and address as configured, with a Retry-After header.
func TestRequestsAreLimitedPerKeyAndAddress(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	keys := closed(t, &cfg)
	cfg.Rate, cfg.Burst = 0.01, 3
	h := handler(t, cfg)
	get := func(as, address string) *httptest.ResponseRecorder {
		return ask(t, h, "GET", "/v1/pipelines", bearer(keys[as]), from(address))
	}
	for i, left := range []string{"2", "1", "0"} {
		w := get("viewer", "192.0.2.1:1000")
		if w.Code != 200 || w.Header().Get("RateLimit-Policy") != `"requests";q=3;w=300` || !strings.HasPrefix(w.Header().Get("RateLimit"), `"requests";r=`+left+";t=") {
			t.Errorf("request %d: got %d %v, want 200 and %s left", i, w.Code, w.Header(), left)
		}
	}
	w := get("viewer", "192.0.2.1:2000")
	var p Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != http.StatusTooManyRequests || p.Status != w.Code {
		t.Errorf("got %d %s, want a problem 429", w.Code, w.Body)
	}
	if after, err := strconv.Atoi(w.Header().Get("Retry-After")); err != nil || after < 50 || after > 100 {
		t.Errorf("got Retry-After %q, want 50 to 100 s", w.Header().Get("Retry-After"))
	}
	for name, w := range map[string]*httptest.ResponseRecorder{
		"another address": get("viewer", "192.0.2.2:1000"), "another key": get("operator", "192.0.2.1:1000"),
		"another network": get("viewer", "[2001:db8:1::1]:1"),
	} {
		if w.Code != 200 {
			t.Errorf("%s: got %d, want 200", name, w.Code)
		}
	}
	for i := range 3 { // the network has one left less
		if w, want := get("viewer", fmt.Sprintf("[2001:db8:1::%d]:1", i+2)), []int{200, 200, 429}[i]; w.Code != want {
			t.Errorf("address %d of a network: got %d, want %d", i, w.Code, want)
		}
	}
	for i, want := range []int{401, 401, 401, 429} {
		if w := get("none", "192.0.2.3:1"); w.Code != want {
			t.Errorf("request %d without a key: got %d, want %d", i, w.Code, want)
		}
	}
	for range 5 {
		if w := ask(t, h, "GET", "/health", from("192.0.2.3:1")); w.Code != 200 {
			t.Errorf("health: got %d, want 200 always", w.Code)
		}
	}
	if w := ask(t, h, "GET", "/ready", from("192.0.2.3:1")); w.Code != 429 { // it asks Redis
		t.Errorf("ready: got %d, want 429", w.Code)
	}
}

// A limit does not depend on Redis being there.
func TestLimitsAreOpenWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	cfg := served(t)
	client := tasks.NewClient(server.Client())
	t.Cleanup(func() { _ = client.Close() })
	cfg.Client, cfg.Rate, cfg.Burst, cfg.Gate = client, 0.01, 1, gate(t, "a key that is long enough for tests")
	h := handler(t, cfg)
	server.Kill()
	for range 3 {
		if w := ask(t, h, "GET", "/v1/pipelines", bearer("a key that is long enough for tests")); w.Code != 200 {
			t.Errorf("got %d %s, want 200", w.Code, w.Body)
		}
	}
}

// Pages of listed origins may use the interface, and a preflight needs no key; others get no permission.
func TestOnlyListedOriginsShareTheInterface(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	keys := closed(t, &cfg)
	cfg.Origins = []string{"https://app.example"}
	h, f := handler(t, cfg), populate(t, cfg, "")
	pause := "/v1/agents/" + f.agent + "/pause"
	for origin, allowed := range map[string]bool{"https://app.example": true, "http://app.example": false, "https://evil.example": false, "https://app.example.evil.example": false, "null": false} {
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
			w := ask(t, h, "OPTIONS", "/jobs", header("Origin", origin), header("Access-Control-Request-Method", method),
				header("Access-Control-Request-Headers", "authorization,content-type"), header("Sec-Fetch-Site", "cross-site"))
			if got := w.Header().Get("Access-Control-Allow-Origin"); (got == origin) != allowed || !allowed && got != "" || allowed && w.Code != http.StatusNoContent {
				t.Errorf("preflight of %s from %s: got %d %v, want it allowed: %v", method, origin, w.Code, w.Header(), allowed)
			}
			if got := w.Header().Get("Access-Control-Allow-Credentials"); got != "" {
				t.Errorf("preflight of %s from %s allows the login of the browser: %s", method, origin, got)
			}
		}
		w := ask(t, h, "POST", pause, header("Origin", origin), header("Sec-Fetch-Site", "cross-site"), bearer(keys["operator"]))
		if got := w.Header().Get("Access-Control-Allow-Origin"); (w.Code == 200) != allowed || !allowed && (w.Code != 403 || got != "") || allowed && got != origin {
			t.Errorf("POST from %s: got %d %v, want it allowed: %v", origin, w.Code, w.Header(), allowed)
		}
	}
	// The browser adds the user's login to requests of other origins: it must not count.
	login := func(r *http.Request) { r.SetBasicAuth("", keys["admin"]) }
	for _, c := range []struct {
		origin, site string
		want         int
	}{
		{"https://app.example", "cross-site", 401}, {"https://app.example", "", 401}, {"http://localhost:8080", "", 200}, {"https://localhost", "same-origin", 200}, {"", "", 200},
	} {
		w := ask(t, h, "POST", pause, login, header("Origin", c.origin), header("Sec-Fetch-Site", c.site))
		if w.Code != c.want {
			t.Errorf("the login of the browser from %q (%s): got %d %s, want %d", c.origin, c.site, w.Code, w.Body, c.want)
		}
	}
	// The page can read an error response, and so can display the reason.
	if w := ask(t, h, "GET", "/jobs", header("Origin", "https://app.example")); w.Code != 401 || w.Header().Get("Access-Control-Allow-Origin") == "" {
		t.Errorf("without a key: got %d %v, want 401 that the page can read", w.Code, w.Header())
	}
	cfg.Origins = nil
	if w := ask(t, handler(t, cfg), "OPTIONS", "/jobs", header("Origin", "https://app.example"), header("Access-Control-Request-Method", "POST")); w.Header().Get("Access-Control-Allow-Origin") != "" || w.Code != 401 {
		t.Errorf("by default: got %d %v, want no permission", w.Code, w.Header())
	}
}

// Changes are in the audit log with their caller and status; reads, rejected calls, calls of agents and secrets are not.
func TestChangesAreAudited(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	keys := closed(t, &cfg)
	cfg.Audit, cfg.Keys = access.NewAudit(cfg.Client.Redis()), access.NewKeys(cfg.Client.Redis())
	h, f := handler(t, cfg), populate(t, cfg, "")
	send := func(as, method, path, body string) *httptest.ResponseRecorder {
		return post(t, h, method, path, body, bearer(keys[as]), from("192.0.2.7:99"), header("X-Request-Id", "r-"+as), header("X-Forwarded-For", "6.6.6.6"))
	}
	send("viewer", "GET", "/jobs", "")
	send("viewer", "POST", "/jobs/"+f.job+"/cancel", "")                                                                          // forbidden
	send("agent", "POST", "/v1/assignments/"+f.assignment+"/heartbeat", fmt.Sprintf(`{"agent":%q,"fence":%d}`, f.agent, f.fence)) // work
	for range 3 {                                                                                                                 // whoever may do the least must not push other entries out
		send("agent", "POST", "/v1/agents", `{}`)
		send("agent", "POST", "/v1/agents", `{"name": "x", "roles": ["creator"]}`)
	}
	job := send("operator", "POST", "/v1/jobs", `{"prompt": "a secret prompt"}`).Header().Get("Location")
	send("operator", "POST", "/jobs/"+noJob+"/cancel?token=hush", "") // rejected
	send("operator", "POST", "/v1/agents/"+f.agent+"/pause", "")
	send("admin", "POST", "/asynqmon/api/queues/default:pause", "")
	made := send("admin", "POST", "/v1/keys", `{"name": "new", "role": "viewer"}`)
	if made.Code != http.StatusCreated {
		t.Fatalf("create a key: got %d %s", made.Code, made.Body)
	}
	w := send("admin", "GET", "/v1/audit?limit=3", "")
	var page struct {
		Data []access.Entry
		Next string
	}
	if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || w.Code != 200 || len(page.Data) != 3 || page.Next == "" {
		t.Fatalf("got %d %s, %v, want three entries and more", w.Code, w.Body, err)
	}
	rest := send("admin", "GET", "/v1/audit?cursor="+page.Next, "")
	all := w.Body.String() + rest.Body.String()
	var got []string
	for _, body := range []string{w.Body.String(), rest.Body.String()} {
		testutil.Ok(t, json.Unmarshal([]byte(body), &page))
		for _, e := range page.Data {
			got = append(got, fmt.Sprint(e.Caller, " ", e.Role, " ", e.Operation, " ", e.Path, " ", e.Status, " ", e.Created))
			if e.Address != "192.0.2.7" || e.Request != "r-"+e.Caller || e.CallerID == "" || e.Time.IsZero() {
				t.Errorf("got %+v, want its address, request and key", e)
			}
		}
	}
	want := []string{
		"admin admin createKey /v1/keys 201 " + made.Header().Get("Location"), "admin admin /asynqmon/ /asynqmon/api/queues/default:pause 204 ", "operator operator pauseAgent /v1/agents/" + f.agent + "/pause 200 ",
		"operator operator createJob /v1/jobs 201 " + job,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	var created struct{ Secret string }
	if err := json.Unmarshal(made.Body.Bytes(), &created); err != nil || !strings.HasPrefix(created.Secret, "muster_") {
		t.Errorf("got %s, %v, want a key", made.Body, err)
	}
	for _, secret := range []string{created.Secret, "secret prompt", "hush", keys["admin"]} {
		if strings.Contains(all, secret) {
			t.Errorf("the audit log has %q", secret)
		}
	}
	if w := send("admin", "GET", "/v1/audit?cursor=x", ""); w.Code != 400 || !strings.Contains(w.Body.String(), "query.cursor") {
		t.Errorf("a wrong cursor: got %d %s", w.Code, w.Body)
	}
	if w := ask(t, h, "GET", "/v1/pipelines", bearer(created.Secret)); w.Code != 200 {
		t.Errorf("the new key: got %d", w.Code)
	}
	if w := send("admin", "DELETE", "/v1/keys/new", ""); w.Code != 200 || !strings.Contains(w.Body.String(), `"state":"revoked"`) {
		t.Errorf("revoke: got %d %s", w.Code, w.Body)
	}
}

// The inputs and headers of tasks are for admins, on pages and in their updates.
func TestOnlyAdminsSeeInputsOnLivePages(t *testing.T) {
	t.Parallel()
	cfg := everything(t)
	keys := closed(t, &cfg)
	run := testutil.Must(tasks.New[string, int]("shop.order", tasks.External()).S("a-secret").Send(t.Context(), cfg.Client, tasks.Headers(map[string]string{"token": "a-secret"})))(t)
	server := testutil.Serve(t, handler(t, cfg))
	for role, shown := range map[string]bool{"viewer": false, "admin": true, "operator": false} {
		for _, tag := range []string{"", "none"} {
			r := testutil.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/ui/tasks/workflows/"+run.ID()+"/nodes/0", nil))(t)
			bearer(keys[role])(r)
			if tag != "" {
				r.Header.Set("If-None-Match", tag)
			}
			res := testutil.Must(server.Client().Do(r))(t)
			body, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			text := string(body)
			if err != nil || res.StatusCode != http.StatusOK || !strings.Contains(text, "shop.order") || strings.Contains(text, "a-secret") != shown {
				t.Errorf("If-None-Match %q for %s: got %d and %.3000q, want 200, with the secret: %t", tag, role, res.StatusCode, text, shown)
			}
		}
	}
}

// An open page takes few commands of Redis for access checks and limits.
func TestPollsTakeFewCommands(t *testing.T) {
	t.Parallel()
	cfg := everything(t)
	cfg.Rate, cfg.Burst = 1000, 2000
	keys := closed(t, &cfg)
	h := handler(t, cfg)
	poll := func() {
		w := ask(t, h, "GET", "/ui/tasks/schedule", bearer(keys["viewer"]), func(r *http.Request) { r.Header.Set("If-None-Match", "none") })
		if w.Code != 200 {
			t.Fatalf("got %d %s", w.Code, w.Body)
		}
	}
	poll()
	var traffic redistest.Traffic
	cfg.Client.Redis().AddHook(&traffic)
	for range 100 {
		poll()
	}
	if commands, _ := traffic.Take(); commands > 130 {
		t.Errorf("100 polls took %d commands, want at most 130", commands)
	}
}
