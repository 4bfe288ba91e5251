// Delays shows work that runs later. In counts from when a task could run: after the send or, in a chain, after the
// step before it. At is a time of day. A task that waits holds no worker.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"muster/tasks"
)

var (
	Order  = tasks.New[string, string]("shop.order")
	Remind = tasks.New[string, string]("shop.remind", tasks.In(100*time.Millisecond)) // after the order
	Report = tasks.New[string, string]("shop.report")
)

func order(_ context.Context, product string) (string, error) { return product, nil }

func remind(_ context.Context, product string) (string, error) {
	return "how do you like your " + product + "?", nil
}

func report(_ context.Context, day string) (string, error) { return "report of " + day, nil }

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
	tasks.Handle(mux, Order, order)
	tasks.Handle(mux, Remind, remind)
	tasks.Handle(mux, Report, report)
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		return err
	}
	defer worker.Stop()

	start := time.Now()
	text, err := tasks.Chain(Order.S("lamp"), Remind).Do(ctx, client)
	if err != nil {
		return err
	}
	fmt.Println(text)
	fmt.Println("after the delay:", time.Since(start) >= 100*time.Millisecond)

	evening := time.Now().Add(100 * time.Millisecond)
	text, err = Report.S("Monday").Do(ctx, client, tasks.At(evening))
	if err != nil {
		return err
	}
	fmt.Println(text)
	fmt.Println("in the evening:", !time.Now().Before(evening))
	return nil
}

// Output:
// how do you like your lamp?
// after the delay: true
// report of Monday
// in the evening: true
