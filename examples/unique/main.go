// Unique shows two ways to send something only once. ID sets the id of a workflow: a second send with that id is refused
// for as long as the results of the first are kept. Unique refuses a second send only while the first is running.
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

var Invoice = tasks.New[string, string]("orders.invoice")

func invoice(_ context.Context, order string) (string, error) {
	return "invoice of order " + order, nil
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
	tasks.Handle(mux, Invoice, invoice)
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		return err
	}
	defer worker.Stop()

	run, err := Invoice.S("17").Send(ctx, client, tasks.ID("invoice-17"))
	if err != nil {
		return err
	}
	again, err := Invoice.S("17").Send(ctx, client, tasks.ID("invoice-17"))
	if !errors.Is(err, tasks.ErrDuplicate) {
		return err
	}
	fmt.Println("sent before:", again.ID() == run.ID())
	text, err := again.Wait(ctx) // the handle is that of the first
	if err != nil {
		return err
	}
	fmt.Println(text)

	later, err := Invoice.S("18").Send(ctx, client, tasks.Unique("order-18", time.Hour), tasks.In(time.Hour))
	if err != nil {
		return err
	}
	_, err = Invoice.S("18").Send(ctx, client, tasks.Unique("order-18", time.Hour))
	fmt.Println("while one is under way:", errors.Is(err, tasks.ErrDuplicate))
	if err := later.Revoke(ctx); err != nil {
		return err
	}
	text, err = Invoice.S("18").Do(ctx, client, tasks.Unique("order-18", time.Hour))
	if err != nil {
		return err
	}
	fmt.Println(text)
	return run.Forget(ctx) // lets this program run again today
}

// Output:
// sent before: true
// invoice of order 17
// while one is under way: true
// invoice of order 18
