// Polling waits for an outside service without holding a worker: a handler that returns Again is called again after that
// time. Again is not a failure and uses up no attempt.
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
	StartExport = tasks.New[string, string]("export.start") // yields the number of the export
	AwaitExport = tasks.New[string, string]("export.await") // yields the file
)

var asked atomic.Int32 // how often the other system was asked

// exportFile asks the other system for the file of an export, which is ready at the fourth request.
func exportFile(number string) (file string, ready bool) {
	return "export-" + number + ".csv", asked.Add(1) >= 4
}

func startExport(_ context.Context, table string) (string, error) { return "17", nil }

func awaitExport(ctx context.Context, number string) (string, error) {
	file, ready := exportFile(number)
	if !ready {
		return "", tasks.Again(20 * time.Millisecond)
	}
	return fmt.Sprintf("%s, attempt %d", file, tasks.InfoFrom(ctx).Attempt), nil
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
	tasks.Handle(mux, StartExport, startExport)
	tasks.Handle(mux, AwaitExport, awaitExport)
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		return err
	}
	defer worker.Stop()

	file, err := tasks.Chain(StartExport.S("orders"), AwaitExport).Do(ctx, client)
	if err != nil {
		return err
	}
	fmt.Println(file)
	fmt.Println("asked", asked.Load(), "times")
	return nil
}

// Output:
// export-17.csv, attempt 1
// asked 4 times
