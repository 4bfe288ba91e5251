// Timelimits shows three limits: Timeout ends the context of a handler, HardTimeout gives up on a handler that ignores
// its context, and with Expires a worker that comes to a task too late revokes it.
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
	<-ctx.Done() // a long computation that ends with its context
	return "", ctx.Err()
}

func code(err error) string {
	if f, ok := errors.AsType[*tasks.Failure](err); ok {
		return f.Code
	}
	return fmt.Sprint(err)
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
	tasks.Handle(mux, Render, render)
	tasks.Handle(mux, Print, func(context.Context, string) (string, error) {
		select {} // a driver that hangs
	})
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		return err
	}
	defer worker.Stop()

	offer, err := Offer.S("sales").Send(ctx, client) // no worker takes from its queue so far
	if err != nil {
		return err
	}
	_, err = Render.S("sales").Do(ctx, client)
	fmt.Println("render:", code(err))
	_, err = Print.S("sales").Do(ctx, client)
	fmt.Println("print:", code(err))

	late, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{Queues: map[string]int{"night": 1}})
	if err != nil {
		return err
	}
	defer late.Stop()
	_, err = offer.Wait(ctx)
	fmt.Println("offer:", code(err))
	return nil
}

// Output:
// render: timeout
// print: hard_timeout
// offer: expired
