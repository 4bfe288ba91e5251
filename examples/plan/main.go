// Plan shows a task that decides at run time what follows: HandlePlan binds it to a function that returns a signature,
// which replaces it. Here the size of a folder is the sum of its parts, which may be folders in turn.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"

	"muster/tasks"
)

var (
	Size = tasks.New[string, int]("disk.size")
	Sum  = tasks.New[[]int, int]("disk.sum")
)

var (
	folders = map[string][]string{
		"home":   {"letter", "photos"},
		"photos": {"beach", "boat"},
	}
	files = map[string]int{"letter": 2, "beach": 300, "boat": 250}
)

func size(_ context.Context, name string) (tasks.Signature[int], error) {
	if parts, ok := folders[name]; ok {
		return tasks.Chord(tasks.Each(parts, Size), Sum), nil
	}
	return tasks.Value(files[name]), nil
}

func sum(_ context.Context, sizes []int) (total int, err error) {
	for _, size := range sizes {
		total += size
	}
	return total, nil
}

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
	tasks.HandlePlan(mux, Size, size)
	tasks.Handle(mux, Sum, sum)
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		return err
	}
	defer worker.Stop()

	total, err := Size.S("home").Do(ctx, client)
	if err != nil {
		return err
	}
	fmt.Println("home:", total)
	return nil
}

// Output:
// home: 552
