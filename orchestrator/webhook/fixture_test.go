package webhook

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"muster/internal/addressfilter"
	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/internal/webhook"
	"muster/orchestrator/event"
)

func TestMain(m *testing.M) { redistest.Main(m, func() error { return goleak.Find() }) }

// got is a request that a receiver acknowledged or refused.
type got struct {
	id, body string
	status   int
	headers  http.Header
}

// receiver is an endpoint. answer returns the status of a response from the ID of the request and the number of
// earlier ones.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex // guards the fields below
	answer func(id string, before int) int
	all    []got
	times  map[string]int
	bodies map[string]string
	wrong  []string // ids that came with two bodies
}

func newReceiver(t *testing.T, answer func(id string, before int) int) *receiver {
	t.Helper()
	r := &receiver{answer: answer, times: map[string]int{}, bodies: map[string]string{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	id := req.Header.Get("webhook-id")
	r.mu.Lock()
	defer r.mu.Unlock()
	status := http.StatusOK
	if r.answer != nil {
		status = r.answer(id, r.times[id])
	}
	r.times[id]++
	if known, ok := r.bodies[id]; ok && known != string(body) {
		r.wrong = append(r.wrong, id)
	}
	r.bodies[id] = string(body)
	r.all = append(r.all, got{id, string(body), status, req.Header.Clone()})
	w.WriteHeader(status)
}

// set changes the responses of the receiver.
func (r *receiver) set(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = func(string, int) int { return status }
}

// requests are all requests so far.
func (r *receiver) requests() []got {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]got{}, r.all...)
}

// kit is a service with its dependencies.
type kit struct {
	*Service
	rdb    redis.UniversalClient
	events *event.Stream
}

// quick is a configuration that waits no longer than it must, and may send to this machine.
func quick(t *testing.T, rdb redis.UniversalClient) Config {
	t.Helper()
	f := testutil.Must(addressfilter.New(addressfilter.Local()...))(t)
	return Config{
		Redis: rdb, Filter: f, Tick: 5 * time.Millisecond, Retry: 5 * time.Millisecond, MaxRetry: 50 * time.Millisecond,
		Timeout: 5 * time.Second, Attempts: 4,
	}
}

// open returns a service that does not run.
func open(t *testing.T, cfg Config) kit {
	t.Helper()
	s := testutil.Must(New(cfg))(t)
	return kit{s, cfg.Redis, event.New(cfg.Redis)}
}

// run runs the service until the test ends.
func (k kit) run(t *testing.T) {
	t.Helper()
	t.Cleanup(testutil.Background(t, k.Run))
}

// create creates an endpoint.
func (k kit) create(t *testing.T, url string, events ...string) (Endpoint, string) {
	t.Helper()
	e, secret, err := k.Create(t.Context(), NewEndpoint{URL: url, Events: events})
	testutil.Ok(t, err)
	return e, secret
}

// emit adds n events.
func (k kit) emit(t *testing.T, eventType string, n int) (ids []string) {
	t.Helper()
	for i := range n {
		id := testutil.Must(k.events.Add(t.Context(), eventType, "", "", map[string]int{"n": i}))(t)
		ids = append(ids, id)
	}
	return ids
}

// passed reports whether all events are passed on.
func (k kit) passed(t *testing.T) bool {
	t.Helper()
	n, err := k.backlog(context.Background())
	return err == nil && n == 0
}

// states counts the deliveries of an endpoint by state.
func (k kit) states(t *testing.T, endpoint string) string {
	t.Helper()
	counts := map[string]int{}
	for cursor := ""; ; {
		page := testutil.Must(k.Deliveries(context.Background(), endpoint, DeliveryFilter{Cursor: cursor, Limit: 500}))(t)
		for _, d := range page.Deliveries {
			counts[d.State]++
		}
		if cursor = page.Next; cursor == "" {
			return fmt.Sprint(counts)
		}
	}
}

// settled waits until the deliveries of an endpoint are in some states.
func (k kit) settled(t *testing.T, endpoint, want string) {
	t.Helper()
	last := ""
	defer func() {
		if t.Failed() {
			t.Logf("the deliveries are %s, want %s", last, want)
		}
	}()
	testutil.Eventually(t, "deliveries "+want, func() bool { last = k.states(t, endpoint); return last == want })
}

// verified reports whether a request is signed with a secret.
func (g got) verified(secret string) bool {
	return webhook.Verify(g.headers, []byte(g.body), time.Now(), secret) == nil
}

// unreachable is the result of a request without a response.
var unreachable = webhook.Result{Outcome: webhook.Unreachable}

// answered returns a result that requests a pause.
func answered(after time.Duration) webhook.Result {
	return webhook.Result{Outcome: webhook.Failed, Status: 429, RetryAfter: after}
}
