package workqueue_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"muster/internal/redistest"
	"muster/tasks/workqueue"
)

// A pool works on the items of a queue until none is open.
func Example() {
	rdb, end := redistest.Example() // a program calls tasks.Connect
	defer end()
	ctx := context.Background()
	q := workqueue.New(rdb, "papers", workqueue.Config{MaxAttempts: 2, Backoff: workqueue.Backoff{Base: time.Millisecond}})

	items := []workqueue.Item{
		{ID: "a", Kind: "print", Payload: []byte(`{"title":"On Queues"}`)},
		{ID: "b", Kind: "print", Payload: []byte(`{"title":""}`)},
		{ID: "c", Kind: "print", Payload: []byte(`not json`)},
	}
	added, err := q.Enqueue(ctx, items...)
	fmt.Println("new:", added, err)
	added, err = q.Enqueue(ctx, items...) // the ID is the idempotence key
	fmt.Println("new:", added, err)

	printer := func(_ context.Context, it workqueue.Leased) (workqueue.Outcome, error) {
		var paper struct{ Title string }
		if err := json.Unmarshal(it.Payload, &paper); err != nil {
			return workqueue.Outcome{}, workqueue.Invalid(err)
		}
		if paper.Title == "" {
			return workqueue.Skipped("no title"), nil
		}
		fmt.Println("printing", paper.Title)
		return workqueue.Done().With([]byte(strings.ToUpper(paper.Title))), nil
	}
	pool, err := workqueue.NewPool(q, workqueue.Handlers{"print": printer}, workqueue.PoolConfig{Workers: 4, Drain: true})
	if err != nil {
		panic(err)
	}
	if err := pool.Run(ctx); err != nil {
		panic(err)
	}

	infos, err := q.Get(ctx, "a", "b", "c")
	if err != nil {
		panic(err)
	}
	for _, it := range infos {
		fmt.Printf("%s: %s, %d failed runs, result %q\n", it.ID, it.State, it.Attempts, it.Result)
	}
	// Output:
	// new: 3 <nil>
	// new: 0 <nil>
	// printing On Queues
	// a: done, 0 failed runs, result "ON QUEUES"
	// b: skipped, 0 failed runs, result ""
	// c: error, 2 failed runs, result ""
}

// A worker without a pool leases, and settles by the token of its lease: one that
// is too late changes nothing.
func ExampleQueue_Lease() {
	rdb, end := redistest.Example()
	defer end()
	ctx := context.Background()
	q := workqueue.New(rdb, "papers", workqueue.Config{})
	if _, err := q.Enqueue(ctx, workqueue.Item{ID: "a"}); err != nil {
		panic(err)
	}
	first, err := q.Lease(ctx, "worker 1", 10)
	if err != nil {
		panic(err)
	}
	fmt.Println("worker 1 has", first[0].ID)

	// The worker dies, and its supervisor reports it. Otherwise the lease has to expire.
	n, err := q.ExpireWorker(ctx, "worker 1")
	fmt.Println("returned:", n, err)
	second, err := q.Lease(ctx, "worker 2", 10)
	if err != nil {
		panic(err)
	}
	fmt.Println("worker 2 has", second[0].ID, "after", second[0].Attempts, "failed run")

	err = q.Settle(ctx, first[0], workqueue.Done())
	fmt.Println("too late:", errors.Is(err, workqueue.ErrLeaseLost))
	fmt.Println("in time:", q.Settle(ctx, second[0], workqueue.Done()))
	// Output:
	// worker 1 has a
	// returned: 1 <nil>
	// worker 2 has a after 1 failed run
	// too late: true
	// in time: <nil>
}
