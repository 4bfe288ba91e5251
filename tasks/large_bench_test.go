package tasks_test

import (
	"fmt"
	"testing"

	"muster/tasks"
	"muster/tasks/redistest"
)

// BenchmarkLargeGroups has the cost of a task in groups of several sizes, many of them at once: cpu-µs/op divided by
// tasks/op. This process has the sender and the worker.
func BenchmarkLargeGroups(b *testing.B) {
	for _, c := range []struct{ groups, size int }{{100, 1000}, {1, 100_000}, {10, 100_000}} {
		b.Run(fmt.Sprint(c.groups, "x", c.size), func(b *testing.B) {
			client := benchClient(b)
			redistest.Measured(b, client.Redis(), func() {
				for range b.N {
					runs := make([]*tasks.AsyncResult[[]int], c.groups)
					for i := range runs {
						run, err := tasks.Each(make([]int, c.size), benchStep).Send(b.Context(), client)
						if err != nil {
							b.Fatal(err)
						}
						runs[i] = run
					}
					for _, run := range runs {
						if err := run.WaitAll(b.Context()); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
			b.ReportMetric(float64(c.groups*c.size), "tasks/op")
		})
	}
}
