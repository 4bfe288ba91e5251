// Firstprogram declares a task, starts a worker that runs it, and sends it some work. In production the worker and the
// sender are usually two programs that share the declaration.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"

	"muster/tasks"
)

var Receipt = tasks.New[string, string]("order.receipt")

func main() {
	ctx := context.Background()
	client, err := tasks.Connect(ctx, cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379/0"))
	check(err)
	mux := tasks.NewMux()
	tasks.Handle(mux, Receipt, func(_ context.Context, order string) (string, error) { return "receipt of " + order, nil })
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	check(err)

	receipt, err := Receipt.S("order 17").Do(ctx, client)
	check(err)
	fmt.Println(receipt)
	check(worker.Stop()) // lets running tasks finish
	check(client.Close())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Output:
// receipt of order 17
