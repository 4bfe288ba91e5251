package taskstest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"muster/tasks"
	"muster/tasks/taskstest"
)

var (
	Fetch = tasks.New[string, int]("shop.fetch", tasks.MaxRetry(3))
	Total = tasks.New[[]int, int]("shop.total")
)

// Prices returns a workflow that adds up the prices of pages.
func Prices(urls []string) tasks.Signature[int] { return tasks.Chord(tasks.Each(urls, Fetch), Total) }

// Register registers the handlers.
func Register(mux *tasks.Mux) {
	tasks.Handle(mux, Fetch, func(context.Context, string) (int, error) { return 0, errors.New("network unreachable") })
	tasks.Handle(mux, Total, func(_ context.Context, prices []int) (int, error) {
		total := 0
		for _, p := range prices {
			total += p
		}
		return total, nil
	})
}

// This test replaces one task, which fails at first. The retry takes no time.
func Example() {
	test := func(t testing.TB) {
		mux := tasks.NewMux()
		Register(mux)
		f := taskstest.New(t, mux, taskstest.Stub(Fetch, func(ctx context.Context, url string) (int, error) {
			if url == "b" && tasks.InfoFrom(ctx).Attempt == 1 {
				return 0, tasks.RetryIn(time.Hour, errors.New("busy"))
			}
			return len(url), nil
		}))
		total, err := taskstest.Do(f, Prices([]string{"aa", "b"}))
		fmt.Println(total, err)
		for _, c := range f.Calls("shop.fetch") {
			fmt.Println(taskstest.In[string](t, c), "attempt", c.Attempt, c.Err)
		}
	}
	run(test)
	// Output:
	// 3 <nil>
	// aa attempt 1 <nil>
	// b attempt 1 busy
	// b attempt 2 <nil>
}

// run simulates "go test".
func run(test func(testing.TB)) {
	tb := &exampleTB{}
	defer tb.end()
	test(tb)
}

type exampleTB struct {
	testing.TB
	ends []func()
}

func (e *exampleTB) Helper()                  {}
func (e *exampleTB) Context() context.Context { return context.Background() }
func (e *exampleTB) Cleanup(f func())         { e.ends = append(e.ends, f) }
func (e *exampleTB) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

func (e *exampleTB) end() {
	for i := len(e.ends) - 1; i >= 0; i-- {
		e.ends[i]()
	}
}
