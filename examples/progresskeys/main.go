// Progresskeys keeps the progress of a workflow in plain keys of Redis, for programs in any language:
// {prefix}:{id}:status, total_chunks and completed_chunks, which count the members of maps, and what handlers add.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"strconv"

	"muster/tasks"
)

var (
	List  = tasks.New[string, []string]("backup.list")
	Copy  = tasks.New[string, int]("backup.copy") // yields megabytes
	Total = tasks.New[[]int, int]("backup.total")
)

func list(_ context.Context, folder string) ([]string, error) {
	return []string{"letters", "photos", "films"}, nil
}

func copyFolder(_ context.Context, folder string) (int, error) { return 100 * len(folder), nil }

func total(ctx context.Context, sizes []int) (sum int, err error) {
	for _, size := range sizes {
		sum += size
	}
	tasks.PublishKey(ctx, "result_count", strconv.Itoa(sum))
	return sum, nil
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
	tasks.Handle(mux, List, list)
	tasks.Handle(mux, Copy, copyFolder)
	tasks.Handle(mux, Total, total)
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		return err
	}
	defer worker.Stop()

	backup := tasks.Chord(tasks.Map(List.S("home"), Copy), Total)
	run, err := backup.Send(ctx, client, tasks.ProgressKeys("backup"))
	if err != nil {
		return err
	}
	if _, err := run.Wait(ctx); err != nil {
		return err
	}
	for _, name := range []string{"status", "total_chunks", "completed_chunks", "result_count"} {
		value, err := client.Redis().Get(ctx, "backup:"+run.ID()+":"+name).Result()
		if err != nil {
			return err
		}
		fmt.Println(name, value)
	}
	return nil
}

// Output:
// status COMPLETE
// total_chunks 3
// completed_chunks 3
// result_count 1800
