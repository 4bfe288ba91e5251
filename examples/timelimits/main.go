// Timelimits shows three limits. Timeout ends the context of a handler, HardTimeout gives up on a handler that ignores its context,
// and Expires revokes a task that no worker has begun in time.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"muster/tasks"
)

var (
	Render = tasks.New[string, string]("report.render", tasks.Timeout(30*time.Millisecond))
	Print  = tasks.New[string, string]("report.print", tasks.HardTimeout(30*time.Millisecond))
	Offer  = tasks.New[string, string]("report.offer", tasks.Queue("night"), tasks.Expires(30*time.Millisecond))
)

func render(ctx context.Context, report string) (string, error) {
	<-ctx.Done() // a long computation that heeds its context
	return "", ctx.Err()
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
	done := make(chan struct{})
	defer close(done)
	mux := tasks.NewMux()
	tasks.Handle(mux, Render, render)
	tasks.Handle(mux, Print, func(context.Context, string) (string, error) {
		<-done // a driver that hangs
		return "printed", nil
	})
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		return err
	}
	defer worker.Stop()

	for _, report := range []tasks.Signature[string]{
		Render.S("sales"),
		Print.S("sales"),
		Offer.S("sales"), // no worker takes from its queue
	} {
		_, err := report.Do(ctx, client)
		var failure *tasks.Failure
		if !errors.As(err, &failure) {
			return err
		}
		fmt.Printf("%s: %s\n", failure.Task, failure.Code)
	}
	return nil
}

// Output:
// report.render: timeout
// report.print: hard_timeout
// report.offer: expired
