// Chain runs tasks one after the other: each gets what the one before it returned, and the types must fit. After runs
// something next without passing it anything.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"

	"muster/tasks"
)

type Order struct {
	ID    string
	Cents int
}

var (
	Load    = tasks.New[string, Order]("orders.load")
	Price   = tasks.New[Order, Order]("orders.price")
	Invoice = tasks.New[Order, string]("orders.invoice")
	Archive = tasks.New[string, string]("orders.archive")
)

func load(_ context.Context, id string) (Order, error) { return Order{ID: id}, nil }

func price(_ context.Context, o Order) (Order, error) {
	o.Cents = 1250
	return o, nil
}

func invoice(_ context.Context, o Order) (string, error) {
	return fmt.Sprintf("invoice for order %s: %d cents", o.ID, o.Cents), nil
}

func archive(_ context.Context, id string) (string, error) { return "archived order " + id, nil }

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
	tasks.Handle(mux, Load, load)
	tasks.Handle(mux, Price, price)
	tasks.Handle(mux, Invoice, invoice)
	tasks.Handle(mux, Archive, archive)
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		return err
	}
	defer worker.Stop()

	invoiced := tasks.Chain3(Load.S("A-17"), Price, Invoice) // reads in the order in which it runs
	text, err := invoiced.Do(ctx, client)
	if err != nil {
		return err
	}
	fmt.Println(text)

	text, err = tasks.After(invoiced, Archive.S("A-18")).Do(ctx, client)
	if err != nil {
		return err
	}
	fmt.Println(text)
	return nil
}

// Output:
// invoice for order A-17: 1250 cents
// archived order A-18
