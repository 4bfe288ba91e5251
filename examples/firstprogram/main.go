// Firstprogram declares two tasks, starts a worker that runs them, and sends a chord: a group of tasks whose results the
// last task combines. In production the worker and the sender are usually two programs that share the declarations.
package main

import (
	"context"
	"fmt"
	"log"
	"strings"

	"muster/tasks"
	"muster/tasks/embedded"
)

// A program that only sends work needs these declarations, but not the handlers.
var (
	Count = tasks.New[string, int]("text.count", tasks.MaxRetry(3))
	Sum   = tasks.New[[]int, int]("text.sum")
)

func main() {
	ctx := context.Background()
	server, err := embedded.Start(embedded.Config{Dir: "data"}) // a Redis in this program, which keeps its data in a directory
	check(err)
	client, err := tasks.Connect(ctx, server.URL()) // or redis://host:6379/0, redis-cluster://, redis-sentinel://
	check(err)
	mux := tasks.NewMux()
	tasks.Handle(mux, Count, func(_ context.Context, text string) (int, error) { return len(strings.Fields(text)), nil })
	tasks.Handle(mux, Sum, func(_ context.Context, counts []int) (total int, _ error) {
		for _, n := range counts {
			total += n
		}
		return total, nil
	})
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	check(err)

	chapters := []string{"it was a dark night", "the wind rose", "the end"}
	words, err := tasks.Chord(tasks.Each(chapters, Count), Sum).Do(ctx, client) // count in parallel, then sum
	check(err)
	fmt.Println(words, "words")
	check(worker.Stop()) // waits for running tasks
	check(client.Close())
	check(server.Close())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Output:
// 10 words
