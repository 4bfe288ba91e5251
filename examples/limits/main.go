// Limits shows two limits that protect other services. AtMost bounds how many members of a group or a map run at once,
// RateLimit how many tasks of a name start in a period, over all workers. Tasks that wait hold no worker.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"sync/atomic"
	"time"

	"muster/tasks"
)

var (
	Download = tasks.New[string, string]("files.download")
	Ask      = tasks.New[string, string]("api.ask", tasks.RateLimit(2, 100*time.Millisecond))
)

var running, most atomic.Int32

func download(_ context.Context, file string) (string, error) {
	now := running.Add(1)
	defer running.Add(-1)
	for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
	}
	return file, nil
}

func ask(_ context.Context, question string) (string, error) { return "answer", nil }

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	client, err := tasks.Connect(ctx, cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379/0"))
	if err != nil {
		return err
	}
	defer client.Close()
	mux := tasks.NewMux()
	tasks.Handle(mux, Download, download)
	tasks.Handle(mux, Ask, ask)
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		return err
	}
	defer worker.Stop()

	files := []string{"a.zip", "b.zip", "c.zip", "d.zip", "e.zip", "f.zip"}
	got, err := tasks.Each(files, Download, tasks.AtMost(2)).Do(ctx, client)
	if err != nil {
		return err
	}
	fmt.Println("downloads:", len(got), "at most two at once:", most.Load() <= 2)

	start := time.Now()
	answers, err := tasks.Each([]string{"who", "what", "when", "where", "why"}, Ask).Do(ctx, client)
	if err != nil {
		return err
	}
	fmt.Println("answers:", len(answers), "two in 100 ms:", time.Since(start) >= 200*time.Millisecond)
	return nil
}

// Output:
// downloads: 6 at most two at once: true
// answers: 5 two in 100 ms: true
