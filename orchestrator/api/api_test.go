package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs"
	"muster/jobs/agent"
	"muster/orchestrator/access"
	"muster/tasks"
)

func TestMain(m *testing.M) {
	redistest.Main(m, func() error { return goleak.Find() })
}

// setup is a config on a Redis with a queue that has a task.
func setup(t *testing.T) Config {
	t.Helper()
	return setupOn(t, redistest.New(t))
}

func setupOn(t testing.TB, rdb redis.UniversalClient) Config {
	t.Helper()
	enqueue(t, rdb)
	client := tasks.NewClient(rdb)
	t.Cleanup(func() { _ = client.Close() })
	return Config{Client: client}
}

func enqueue(t testing.TB, rdb redis.UniversalClient) {
	t.Helper()
	c := asynq.NewClientFromRedisClient(rdb)
	testutil.Must(c.EnqueueContext(t.Context(), asynq.NewTask("greet", []byte(`{"name":"Ada"}`)), asynq.TaskID("t1")))(t)
}

func handler(t testing.TB, cfg Config) http.Handler {
	t.Helper()
	h := testutil.Must(Handler(cfg))(t)
	return h
}

// ask sends a request after it was modified by change.
func ask(t *testing.T, h http.Handler, method, path string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "http://localhost:8080"+path, http.NoBody)
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// gate is a gate for keys of the settings.
func gate(t *testing.T, keys ...string) *access.Gate {
	t.Helper()
	g := testutil.Must(access.NewGate(keys, nil, nil))(t)
	return g
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func host(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }

func TestPageWantsNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	h := handler(t, setup(t))
	for _, path := range []string{"/asynqmon/", "/asynqmon/queues/default", "/asynqmon/servers"} {
		w := ask(t, h, "GET", path)
		body := w.Body.String()
		if w.Code != 200 || !strings.Contains(body, `<div id="root">`) {
			t.Fatalf("%s: %d %.100s", path, w.Code, body)
		}
		if !strings.Contains(body, "The tasks of workflows are not counted here.") {
			t.Errorf("%s does not explain which tasks it shows", path)
		}
		if found := regexp.MustCompile(`(?:href|src)="(?:https?:)?//[^"]*"`).FindString(body); found != "" {
			t.Errorf("%s wants %s", path, found)
		}
		csp := w.Header().Get("Content-Security-Policy")
		if !strings.Contains(csp, "default-src 'self'") || strings.Contains(csp, "script-src 'self' 'unsafe-inline'") {
			t.Errorf("%s: policy %q", path, csp)
		}
		if got, want := strings.Count(csp, "'sha256-"), strings.Count(body, "<script>"); got != want || want == 0 {
			t.Errorf("%s: the policy allows %d scripts in the page, which has %d", path, got, want)
		}
		// Its scripts and styles are served.
		for _, m := range regexp.MustCompile(`src="(/asynqmon/static/[^"]+)"`).FindAllStringSubmatch(body, -1) {
			if w := ask(t, h, "GET", m[1]); w.Code != 200 || !strings.Contains(w.Header().Get("Content-Type"), "javascript") {
				t.Errorf("%s: %d %s", m[1], w.Code, w.Header().Get("Content-Type"))
			}
		}
	}
	if w := ask(t, h, "GET", "/asynqmon/favicon.ico"); w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "image/") {
		t.Errorf("favicon: %d %s", w.Code, w.Header().Get("Content-Type"))
	}
	if w := ask(t, h, "GET", "/"); w.Code != http.StatusFound || w.Header().Get("Location") != "/asynqmon/" {
		t.Errorf("root: %d to %q", w.Code, w.Header().Get("Location"))
	}
	if w := ask(t, h, "GET", "/elsewhere"); w.Code != http.StatusNotFound {
		t.Errorf("unknown path: %d", w.Code)
	}
}

// A page of another origin cannot make changes through the browser of a user.
func TestForeignPagesAreRefused(t *testing.T) {
	t.Parallel()
	cfg := setup(t)
	cfg.Write = true
	h := handler(t, cfg)
	const pause = "/asynqmon/api/queues/default:pause"
	for name, c := range map[string]struct {
		change []func(*http.Request)
		want   int
	}{
		"foreign origin":      {[]func(*http.Request){header("Origin", "https://evil.example"), header("Content-Type", "text/plain")}, 403},
		"foreign site":        {[]func(*http.Request){header("Sec-Fetch-Site", "cross-site")}, 403},
		"other local service": {[]func(*http.Request){header("Origin", "http://localhost:3000"), header("Sec-Fetch-Site", "same-site")}, 403},
		"null origin":         {[]func(*http.Request){header("Origin", "null")}, 403},
		"own page":            {[]func(*http.Request){header("Origin", "http://localhost:8080"), header("Sec-Fetch-Site", "same-origin")}, 204},
		"no browser":          {nil, 204},
		"rebound name":        {[]func(*http.Request){host("evil.example:8080"), header("Origin", "http://evil.example:8080"), header("Sec-Fetch-Site", "same-origin")}, 421},
	} {
		if w := ask(t, h, "POST", pause, c.change...); w.Code != c.want {
			t.Errorf("%s: %d, want %d", name, w.Code, c.want)
		}
		if w := ask(t, h, "POST", "/asynqmon/api/queues/default:resume"); w.Code/100 != 2 && c.want == 204 {
			t.Errorf("%s: resume: %d", name, w.Code)
		}
	}
	w := ask(t, h, "GET", "/asynqmon/api/queues")
	if w.Header().Get("Cross-Origin-Resource-Policy") != "same-origin" || w.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("headers let others read: %v", w.Header())
	}
}

func TestUnknownHostsAreRejected(t *testing.T) {
	t.Parallel()
	cfg := setup(t)
	cfg.Hosts = func() []string { return []string{"Muster.internal"} }
	h := handler(t, cfg)
	for name, want := range map[string]int{
		"localhost": 200, "localhost:8080": 200, "LOCALHOST": 200, "localhost.": 200, "127.0.0.1:8080": 200, "[::1]:8080": 200,
		"muster.internal:8080": 200, "192.168.1.5": 200,
		"evil.example": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example": 421, "": 421, "muster.internal.evil": 421,
	} {
		if w := ask(t, h, "GET", "/asynqmon/api/queues", host(name)); w.Code != want {
			t.Errorf("%q: %d, want %d", name, w.Code, want)
		}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	cfg := setup(t)
	cfg.Listen, cfg.Gate = "0.0.0.0:8080", gate(t, "first-key-that-is-long-enough-for-tests", "second-key-that-is-long-enough-for-tests")
	h := handler(t, cfg)
	basic := func(password string) func(*http.Request) {
		return func(r *http.Request) { r.SetBasicAuth("anybody", password) }
	}
	for name, c := range map[string]struct {
		change func(*http.Request)
		want   int
	}{
		"none":           {func(*http.Request) {}, 401},
		"login":          {basic("second-key-that-is-long-enough-for-tests"), 200},
		"bearer":         {header("Authorization", "Bearer first-key-that-is-long-enough-for-tests"), 200},
		"wrong login":    {basic("third-key-that-is-long-enough-for-tests"), 401},
		"wrong bearer":   {header("Authorization", "Bearer first-ke"), 401},
		"empty bearer":   {header("Authorization", "Bearer "), 401},
		"empty login":    {basic(""), 401},
		"key as it is":   {header("Authorization", "first-key-that-is-long-enough-for-tests"), 401},
		"other scheme":   {header("Authorization", "Digest first-key-that-is-long-enough-for-tests"), 401},
		"key in the URL": {func(r *http.Request) { r.URL.RawQuery = "key=first-key-that-is-long-enough-for-tests" }, 401},
	} {
		for _, path := range []string{"/asynqmon/", "/asynqmon/api/queues", "/asynqmon/static/js/main.5adda2da.chunk.js"} {
			w := ask(t, h, "GET", path, c.change)
			if w.Code != c.want {
				t.Errorf("%s: %s: %d, want %d", name, path, w.Code, c.want)
			}
			if c.want == 401 && (w.Header().Get("WWW-Authenticate") == "" || strings.Contains(w.Body.String(), "first-key-that-is-long-enough-for-tests")) {
				t.Errorf("%s: %s: %v %s", name, path, w.Header(), w.Body)
			}
		}
	}
	for _, path := range []string{"/health", "/ready"} {
		if w := ask(t, h, "GET", path); w.Code != 200 {
			t.Errorf("%s: got %d %s, want 200 without a key", path, w.Code, w.Body)
		}
	}
	if w := ask(t, h, "GET", "/health", host("evil.example")); w.Code != 421 {
		t.Errorf("health under a foreign name: %d", w.Code)
	}
}

func TestOpenToOthersNeedsAKey(t *testing.T) {
	t.Parallel()
	cfg := setup(t)
	for listen, open := range map[string]bool{
		"127.0.0.1:0": false, "[::1]:0": false, "localhost:0": false, "127.8.9.1:0": false,
		":0": true, "0.0.0.0:0": true, "[::]:0": true, "192.168.1.5:0": true, "example.org:0": true,
	} {
		cfg.Listen = listen
		if _, err := cfg.checkAccess(t.Context()); errors.Is(err, ErrOpen) != open || !open && err != nil {
			t.Errorf("%s: %v, open %v", listen, err, open)
		}
		if open {
			if err := Serve(t.Context(), cfg); !errors.Is(err, ErrOpen) || !strings.Contains(err.Error(), "muster keys create") {
				t.Errorf("%s: Serve: %v", listen, err)
			}
			if err := ServeMetrics(t.Context(), cfg); !errors.Is(err, ErrOpen) {
				t.Errorf("%s: ServeMetrics: %v", listen, err)
			}
		}
	}
	cfg.Listen = "8080"
	if err := Serve(t.Context(), cfg); err == nil {
		t.Error("an address without a colon is accepted")
	}
	// A stored key closes the interface, even if it is revoked.
	keys := access.NewKeys(cfg.Client.Redis())
	stored := testutil.Must(access.NewGate(nil, keys, nil))(t)
	cfg.Listen, cfg.Gate = "0.0.0.0:0", stored
	if _, _, err := keys.Create(t.Context(), access.NewKey{Name: "one", Role: access.Admin}); err != nil {
		t.Fatal(err)
	}
	testutil.Must(keys.Revoke(t.Context(), "one"))(t)
	if closed, err := cfg.checkAccess(t.Context()); err != nil || !closed {
		t.Errorf("with a stored key: closed %v, %v", closed, err)
	}
	if w := ask(t, handler(t, cfg), "GET", "/asynqmon/"); w.Code != http.StatusUnauthorized {
		t.Errorf("got %d without a key after the only one was revoked, want 401", w.Code)
	}
}

func TestPageURL(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"0.0.0.0": "http://localhost:80/asynqmon/", "::": "http://localhost:80/asynqmon/",
		"127.0.0.1": "http://127.0.0.1:80/asynqmon/", "::1": "http://[::1]:80/asynqmon/",
	} {
		if got := pageURL(&net.TCPAddr{IP: net.ParseIP(host), Port: 80}, Root+"/"); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
}

func TestServe(t *testing.T) {
	t.Parallel()
	cfg := setup(t)
	ready := make(chan string, 1)
	cfg.Listen, cfg.Ready = "127.0.0.1:0", func(url string) { ready <- url }
	log := &testutil.Output{}
	cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, cfg) }()
	url := <-ready
	if text := log.String(); !strings.Contains(text, "level=WARN") || !strings.Contains(text, "muster keys create") {
		t.Errorf("log without keys: got %q, want a warning", text)
	}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	resp := testutil.Must(client.Get(url))(t)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("%s: %d", url, resp.StatusCode)
	}

	// The port is taken now.
	other := cfg
	other.Listen, other.Ready = strings.TrimSuffix(strings.TrimPrefix(url, "http://"), Root+"/"), nil
	if err := Serve(t.Context(), other); !errors.Is(err, ErrTaken) || !strings.Contains(err.Error(), other.Listen) || !strings.Contains(err.Error(), "choose another") {
		t.Errorf("taken port: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// The schema allows a value if the service does: its limits are the constants of the services.
func TestLimitsOfTheSchemaAreThoseOfTheServices(t *testing.T) {
	t.Parallel()
	o := readSpec(t)
	for place, want := range map[string]int{
		"NewJob/properties/prompt/maxLength": jobs.MaxPrompt, "NewJob/properties/priority/maximum": jobs.MaxPriority, "NewJob/properties/priority/minimum": -jobs.MaxPriority,
		"NewJob/properties/labels/maxItems": jobs.MaxLabels, "NewJob/properties/labels/items/maxLength": jobs.MaxLabel, "NewJob/properties/after/maxItems": jobs.MaxAfter,
		"JobEdit/properties/priority/maximum": jobs.MaxPriority, "JobEdit/properties/priority/minimum": -jobs.MaxPriority,
		"JobEdit/properties/labels/maxItems": jobs.MaxLabels, "JobEdit/properties/labels/items/maxLength": jobs.MaxLabel,
		"JobRetry/properties/keys/maxItems": jobs.MaxItems, "JobRetry/properties/keys/items/maxLength": jobs.MaxKey,
		"Decisions/properties/keys/maxItems": jobs.MaxItems, "Decisions/properties/keys/items/maxLength": jobs.MaxKey,
		"NewItems/properties/items/maxItems": jobs.MaxItems, "Completion/properties/items/maxItems": jobs.MaxItems, "NewItem/properties/key/maxLength": jobs.MaxKey,
		"NewAgent/properties/name/maxLength": agent.MaxName, "NewAgent/properties/roles/maxItems": agent.MaxRoles,
		"NewAgent/properties/capacity/maximum": agent.MaxCapacity, "NewAgent/properties/url/maxLength": agent.MaxURL,
		"LeaseRequest/properties/max/maximum": agent.MaxLease, "LeaseRequest/properties/wait_seconds/maximum": int(agent.MaxWait.Seconds()),
	} {
		got := o.resolve("#/components/schemas/" + place)
		if fmt.Sprint(got) != fmt.Sprint(float64(want)) {
			t.Errorf("%s: got %v, want %d as in the service", strings.ReplaceAll(place, "/properties/", "."), got, want)
		}
	}
}

// Errors of a request whose client disconnected are not logged as failures; others are.
func TestRequestsWhoseClientHasGoneAreNotLoggedAsFailures(t *testing.T) {
	t.Parallel()
	for _, gone := range []bool{true, false} {
		cfg := served(t)
		var out bytes.Buffer
		cfg.Logger = slog.New(slog.NewTextHandler(&out, nil))
		ctx, cancel := context.WithCancel(t.Context())
		if gone {
			cancel()
		}
		broken := redistest.NewFault(redistest.Refused, redistest.EveryCall)
		broken.Arm()
		cfg.Client.Redis().AddHook(broken)
		ask(t, handler(t, cfg), http.MethodGet, "/jobs", func(r *http.Request) { *r = *r.WithContext(ctx) })
		if logged := strings.Contains(out.String(), "a request failed"); logged == gone {
			t.Errorf("client gone %v: logged %v\n%s", gone, logged, out.String())
		}
		cancel()
	}
}

// A panic leads to a problem as response; a response that has begun is aborted.
func TestPanicIsAnsweredAndLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	cfg := Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}.withDefaults()
	served := newRoutes()
	served.handle("GET /{x}", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a bug") }))
	served.handle("GET /begun", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		panic("a bug")
	}))
	h := testutil.Must(cfg.layered(served))(t)
	w := ask(t, h, "GET", "/a-secret", header("X-Request-Id", "r-1"))
	if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), `"status":500`) {
		t.Errorf("got %d %s, want a problem 500", w.Code, w.Body)
	}
	for _, want := range []string{"request_id=r-1", `route="GET /{x}"`, "panic=\"a bug\"", "TestPanicIsAnsweredAndLogged"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %s: %s", want, log.String())
		}
	}
	defer func() {
		if got := recover(); got != http.ErrAbortHandler {
			t.Errorf("the incomplete response ended with %v, want http.ErrAbortHandler", got)
		}
	}()
	ask(t, h, "GET", "/begun")
}

// FuzzCursor checks that every accepted cursor was encoded by makeCursor from plain text.
func FuzzCursor(f *testing.F) {
	for _, s := range []string{"", makeCursor("jobs", "1700000000000-5"), makeCursor("items", "x"), "am9iczo", "==", "am9iczoA"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, cursor string) {
		next, err := readCursor("jobs", cursor)
		if err != nil {
			return
		}
		if plainText(next) != "" || cursor != "" && !strings.HasPrefix(makeCursor("jobs", "x"+next), makeCursor("jobs", "")) {
			t.Errorf("%q is read as %q", cursor, next)
		}
		if again, err := readCursor("jobs", makeCursor("jobs", next)); err != nil || again != next {
			t.Errorf("%q: decoded %q, and decoded %q, %v after encoding again", cursor, next, again, err)
		}
	})
}

// FuzzForm wants a form to make the JSON that the same fields would be, with plain texts alone, or a refusal.
func FuzzForm(f *testing.F) {
	f.Add("b", []byte("--b\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\ndo it\r\n--b\r\nContent-Disposition: form-data; name=\"context\"\r\n\r\n{\"a\":1}\r\n--b--\r\n"))
	f.Add("b", []byte("--b\r\nContent-Disposition: form-data; name=\"labels\"\r\n\r\n\xff\r\n--b--"))
	f.Add("b", []byte("--b\r\nContent-Disposition: form-data; name=\"priority\"\r\n\r\n1e999\r\n--b--"))
	f.Add("b", []byte("--b\r\n\r\n"))
	f.Fuzz(func(t *testing.T, boundary string, body []byte) {
		parts := multipart.NewReader(bytes.NewReader(body), boundary)
		values, left := map[string][]string{}, int64(1000)
		for {
			part, err := parts.NextPart()
			if err != nil {
				break
			}
			if left, err = readField(part, values, left); err != nil {
				return
			}
			if left < 0 {
				t.Fatalf("%q: %d bytes are left", body, left)
			}
		}
		fields, err := fieldsAsJSON(values)
		if err != nil {
			return
		}
		if !json.Valid(fields) || !utf8.Valid(fields) {
			t.Errorf("%q makes %q", body, fields)
		}
	})
}
