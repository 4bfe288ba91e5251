// Rescue gives a step that may fail a substitute: a task that gets the failure and returns a value instead. The next
// step gets the value of either.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"muster/tasks"
)

var (
	AskSupplier = tasks.New[string, int]("price.ask_supplier")
	ListPrice   = tasks.New[tasks.Failure, int]("price.list")
	Label       = tasks.New[int, string]("price.label")
)

func askSupplier(_ context.Context, product string) (int, error) {
	if product == "lamp" {
		return 0, errors.New("the supplier does not answer")
	}
	return 790, nil
}

func listPrice(_ context.Context, f tasks.Failure) (int, error) {
	fmt.Printf("%s failed: %s\n", f.Task, f.Message)
	return 1000, nil
}

func label(_ context.Context, cents int) (string, error) { return fmt.Sprintf("%d cents", cents), nil }

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
	tasks.Handle(mux, AskSupplier, askSupplier)
	tasks.Handle(mux, ListPrice, listPrice)
	tasks.Handle(mux, Label, label)
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		return err
	}
	defer worker.Stop()

	for _, product := range []string{"chair", "lamp"} {
		price := AskSupplier.S(product).Rescue(ListPrice)
		text, err := tasks.Chain(price, Label).Do(ctx, client)
		if err != nil {
			return err
		}
		fmt.Println(product+":", text)
	}
	return nil
}

// Output:
// chair: 790 cents
// price.ask_supplier failed: the supplier does not answer
// lamp: 1000 cents
