package workqueue_test

import (
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/limit"
	"muster/tasks/redistest"
	"muster/tasks/workqueue"
)

// metricsRun is a queue that a pool has worked on, with a slot that is held and a breaker that is open.
type metricsRun struct {
	k     *kit
	pool  *workqueue.Pool
	slots *limit.KeyedLimiter
}

func newMetricsRun(t *testing.T) metricsRun {
	rdb := redistest.New(t)
	k := newKit(t, rdb, workqueue.Config{MaxAttempts: 1})
	k.enqueue(numbered(10)...)
	if _, err := k.Enqueue(t.Context(),
		workqueue.Item{ID: "late", Kind: "test", NotBefore: time.Now().Add(time.Hour)},
		workqueue.Item{ID: "odd", Kind: "unregistered"}); err != nil {
		t.Fatal(err)
	}
	slots := limit.NewKeyedLimiter(rdb, limit.KeyedConfig{Default: 5})
	slot, err := slots.Acquire(t.Context(), "h")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slot.Release(context.Background()) })
	breaker := limit.NewBreaker(rdb, limit.BreakerConfig{Threshold: 1, Logger: quiet})
	permit, _, _, _ := breaker.Allow(t.Context(), "example.com")
	if err := permit.Failure(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	p := k.pool(workqueue.PoolConfig{Workers: 3, Logger: quiet}, func(_ context.Context, it workqueue.Leased) (workqueue.Outcome, error) {
		switch it.ID {
		case "item-00001":
			return workqueue.Skipped("no"), nil
		case "item-00002":
			return workqueue.Outcome{}, errors.New("no")
		}
		return workqueue.Done(), nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()
	k.eventually("all but the late one to end", func() bool {
		s, err := k.Stats(t.Context())
		return err == nil && s.Open() == 1
	})
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	return metricsRun{k, p, slots}
}

// read serves the metrics with a client and returns their text.
func (m metricsRun) read(rdb redis.UniversalClient) string {
	t := m.k.t
	h := workqueue.MetricsHandler(workqueue.NewCollector(workqueue.New(rdb, m.k.Name(), workqueue.Config{}), m.pool),
		limit.NewCollector(map[string]*limit.KeyedLimiter{"host": m.slots}, limit.NewBreaker(rdb, limit.BreakerConfig{})))
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	body, err := io.ReadAll(rec.Body)
	if err != nil || rec.Code != 200 {
		t.Fatalf("got status %d, %v, %s; want 200", rec.Code, err, body)
	}
	return string(body)
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	m := newMetricsRun(t)
	of := func(line string) string {
		name, rest, _ := strings.Cut(line, "{")
		return name + `{` + strings.ReplaceAll(rest, "Q", `queue="q:TestMetrics"`)
	}
	text := m.read(m.k.rdb)
	for _, line := range []string{
		`muster_queue_up{Q} 1`, `muster_queue_items{Q,state="done"} 8`, `muster_queue_items{Q,state="error"} 2`,
		`muster_queue_items{Q,state="skipped"} 1`, `muster_queue_items{Q,state="queued"} 1`, `muster_queue_items{Q,state="in_progress"} 0`,
		`muster_queue_delayed_items{Q} 1`, `muster_queue_paused{Q} 0`, `muster_queue_outputs{Q} 0`,
		`muster_queue_leases_expired_total{Q} 0`, `muster_queue_runs_total{outcome="done",Q} 8`,
		`muster_queue_runs_total{outcome="error",Q} 2`, `muster_queue_leases{Q} 0`, `muster_queue_workers{Q} 3`,
		`muster_queue_wait_seconds_count{Q} 11`, `muster_queue_run_seconds_count{kind="test",Q} 10`,
		`muster_queue_run_seconds_count{kind="unknown",Q} 1`, `muster_queue_next_waiting_seconds{Q} 0`,
		`muster_limit_slots_used{limiter="host"} 1`, `muster_limit_slots_waiting{limiter="host"} 0`,
		`muster_limit_breakers{state="open"} 1`, `muster_limit_breakers{state="half_open"} 0`,
	} {
		if !strings.Contains(text, of(line)+"\n") {
			t.Errorf("got no line %s, want it", of(line))
		}
	}
	if strings.Contains(text, "unregistered") || strings.Contains(text, "example.com") {
		t.Error("got an unregistered kind or a host as a label, want neither")
	}
	if t.Failed() {
		t.Log(text)
	}

	gone := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer func() { _ = gone.Close() }()
	if text := m.read(gone); !strings.Contains(text, of(`muster_queue_up{Q} 0`)) || strings.Contains(text, "muster_queue_items") {
		t.Errorf("without Redis: got %s, want up 0 and no items", text)
	}
}
