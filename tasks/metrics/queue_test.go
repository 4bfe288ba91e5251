package metrics_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks/metrics"
	"muster/tasks/redistest"
	"muster/tasks/workqueue"
)

func TestQueue(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	q := workqueue.New(redistest.New(t), "q", workqueue.Config{MaxAttempts: 1})
	if _, err := q.Enqueue(ctx, workqueue.Item{ID: "done", Kind: "test"}, workqueue.Item{ID: "skip", Kind: "test"}, workqueue.Item{ID: "fail", Kind: "test"},
		workqueue.Item{ID: "late", Kind: "test", NotBefore: time.Now().Add(time.Hour)}, workqueue.Item{ID: "odd", Kind: "unregistered"}); err != nil {
		t.Fatal(err)
	}
	measured := metrics.NewQueue(q)
	mux := workqueue.NewMux()
	mux.Handle("test", func(_ context.Context, it workqueue.Leased) (workqueue.Outcome, error) {
		switch it.ID {
		case "skip":
			return workqueue.Skipped("no"), nil
		case "fail":
			return workqueue.Outcome{}, errors.New("no")
		}
		return workqueue.Done(), nil
	})
	pool, err := workqueue.NewPool(q, mux, workqueue.PoolConfig{Workers: 3, Observe: measured.Observe})
	testutil.Ok(t, err)
	measured.Watch(pool)
	ended := make(chan error)
	go func() { ended <- pool.Run(ctx) }()
	testutil.Eventually(t, "all but the late one to end", func() bool {
		s, err := q.Stats(t.Context())
		return err == nil && s.Open() == 1
	})
	cancel()
	testutil.Ok(t, <-ended)
	samples := scrape(t, measured)
	for name, want := range map[string]float64{
		`muster_queue_up{queue="q"}`: 1, `muster_queue_items{queue="q",state="done"}`: 1, `muster_queue_items{queue="q",state="error"}`: 2,
		`muster_queue_items{queue="q",state="skipped"}`: 1, `muster_queue_items{queue="q",state="queued"}`: 1, `muster_queue_items{queue="q",state="in_progress"}`: 0,
		`muster_queue_delayed_items{queue="q"}`: 1, `muster_queue_paused{queue="q"}`: 0, `muster_queue_outputs{queue="q"}`: 0,
		`muster_queue_leases_expired_total{queue="q"}`: 0, `muster_queue_runs_total{outcome="done",queue="q"}`: 1,
		`muster_queue_runs_total{outcome="error",queue="q"}`: 2, `muster_queue_leases{queue="q"}`: 0, `muster_queue_workers{queue="q"}`: 3,
		`muster_queue_wait_seconds_count{queue="q"}`: 4, `muster_queue_run_seconds_count{kind="test",queue="q"}`: 3,
		`muster_queue_run_seconds_count{kind="unknown",queue="q"}`: 1, `muster_queue_next_waiting_seconds{queue="q"}`: 0,
	} {
		if got, ok := samples[name]; !ok || got != want {
			t.Errorf("%s: got %v, %t, want %v", name, got, ok, want)
		}
	}
	for name := range samples {
		if strings.Contains(name, "unregistered") {
			t.Errorf("got %s, want no kind without a handler as a label", name)
		}
	}
	gone := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer func() { _ = gone.Close() }()
	samples = scrape(t, metrics.NewQueue(workqueue.New(gone, "q", workqueue.Config{})))
	if up, ok := samples[`muster_queue_up{queue="q"}`]; !ok || up != 0 || len(samples) > 40 {
		t.Errorf("without Redis: got %v, want up 0 and no items", samples)
	}
	if _, ok := samples[`muster_queue_items{queue="q",state="done"}`]; ok {
		t.Error("without Redis: got items, want none")
	}
}
