// Queues routes tasks to workers, by queue, and lets urgent ones go first, by priority. The worker here takes from two queues, and
// runs one task at a time, so that the order shows.
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
	Pack  = tasks.New[string, bool]("shop.pack")
	Print = tasks.New[string, bool]("shop.print", tasks.Queue("printers"))
)

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
	var runs []*tasks.AsyncResult[bool]
	for _, s := range []tasks.Signature[bool]{
		Print.S("label 1"),
		Pack.S("order 1"),
		Pack.S("order 2"),
		Pack.S("order 3, which is urgent", tasks.Priority(9)),
	} {
		run, err := s.Send(ctx, client)
		if err != nil {
			return err
		}
		runs = append(runs, run)
	}

	say := func(_ context.Context, what string) (bool, error) {
		fmt.Println(what)
		return true, nil
	}
	mux := tasks.NewMux()
	tasks.Handle(mux, Pack, say)
	tasks.Handle(mux, Print, say)
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{
		Queues:      map[string]int{"default": 10, "printers": 1}, // with their weights
		Strict:      true,                                         // a queue goes first while it has work
		Concurrency: 1,
	})
	if err != nil {
		return err
	}
	defer worker.Stop()

	for _, run := range runs {
		if _, err := run.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Output:
// order 3, which is urgent
// order 1
// order 2
// label 1
