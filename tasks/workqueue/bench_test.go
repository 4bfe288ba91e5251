package workqueue_test

import (
	"context"
	"fmt"
	"testing"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks/workqueue"
)

func benchItems(n int) []workqueue.Item {
	items := make([]workqueue.Item, n)
	for i := range items {
		items[i] = workqueue.Item{ID: fmt.Sprintf("item-%07d", i), Kind: "bench", Payload: []byte(`{"url":"http://127.0.0.1/"}`)}
	}
	return items
}

func BenchmarkEnqueue(b *testing.B) {
	rdb := redistest.Server(b).Client()
	q := workqueue.New(rdb, "bench", workqueue.Config{})
	items := benchItems(b.N)
	redistest.Measured(b, rdb, func() {
		if n, err := q.Enqueue(b.Context(), items...); err != nil || n != b.N {
			b.Fatalf("enqueued %d items, error %v, want %d", n, err, b.N)
		}
	})
}

// Items are leased and settled by a pool of eight.
func BenchmarkDrain(b *testing.B) {
	rdb := redistest.Server(b).Client()
	q := workqueue.New(rdb, "bench", workqueue.Config{})
	if _, err := q.Enqueue(b.Context(), benchItems(b.N)...); err != nil {
		b.Fatal(err)
	}
	mux := workqueue.NewMux()
	mux.Handle("bench", func(context.Context, workqueue.Leased) (workqueue.Outcome, error) { return workqueue.Done(), nil })
	pool, err := workqueue.NewPool(q, mux, workqueue.PoolConfig{Workers: 8, Drain: true})
	testutil.Ok(b, err)
	redistest.Measured(b, rdb, func() {
		testutil.Ok(b, pool.Run(b.Context()))
	})
	if s, err := q.Stats(b.Context()); err != nil || s.Done != int64(b.N) {
		b.Fatalf("got %+v, error %v, want %d items done", s, err, b.N)
	}
}
