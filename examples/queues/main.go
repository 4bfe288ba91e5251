// Queues routes tasks to workers, by queue, and runs urgent ones first, by priority. Each worker here takes from one
// queue; the first runs one task at a time, so that the order shows.
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
	Pack  = tasks.New[string, string]("shop.pack")
	Print = tasks.New[string, string]("shop.print", tasks.Queue("printers"))
)

func work(_ context.Context, thing string) (string, error) {
	fmt.Println(thing)
	return thing, nil
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
	label, err := Print.S("label").Send(ctx, client)
	if err != nil {
		return err
	}
	var packed []*tasks.AsyncResult[string]
	for _, s := range []tasks.Signature[string]{
		Pack.S("order 1"),
		Pack.S("order 2, which is urgent", tasks.Priority(9)),
	} {
		run, err := s.Send(ctx, client)
		if err != nil {
			return err
		}
		packed = append(packed, run)
	}

	mux := tasks.NewMux()
	tasks.Handle(mux, Pack, work)
	tasks.Handle(mux, Print, work)
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{Concurrency: 1})
	if err != nil {
		return err
	}
	defer worker.Stop()

	for _, run := range packed {
		if _, err := run.Wait(ctx); err != nil {
			return err
		}
	}

	printer, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{Queues: map[string]int{"printers": 1}})
	if err != nil {
		return err
	}
	defer printer.Stop()
	_, err = label.Wait(ctx)
	return err
}

// Output:
// order 2, which is urgent
// order 1
// label
