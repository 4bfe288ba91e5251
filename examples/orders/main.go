// Orders fulfils the orders of a shop. An order is a plan: it returns a workflow for each of its items, built by functions
// that other workflows also use. Large workflows are composed of such parts.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"muster/tasks"
)

type Order struct {
	Customer string
	Items    []string
	Gift     bool // whether to wrap the items
}

var (
	Fulfil  = tasks.New[Order, string]("orders.fulfil")
	Reserve = tasks.New[string, string]("stock.reserve", tasks.MaxRetry(5))
	Wrap    = tasks.New[string, string]("stock.wrap")
	Pack    = tasks.New[[]string, string]("parcel.pack")
	Ship    = tasks.New[tasks.Pair[string, string], string]("parcel.ship") // a parcel to a customer
)

// item takes an item from stock, and wraps it if it is a gift.
func item(name string, gift bool) tasks.Signature[string] {
	if gift {
		return tasks.Chain(Reserve.S(name), Wrap)
	}
	return Reserve.S(name)
}

// parcel collects all items in parallel, then packs them.
func parcel(o Order) tasks.Signature[string] {
	var items []tasks.Signature[string]
	for _, name := range o.Items {
		items = append(items, item(name, o.Gift))
	}
	return tasks.Chord(tasks.Group(items...), Pack)
}

func main() {
	ctx := context.Background()
	client, err := tasks.Connect(ctx, cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379/0"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	mux := tasks.NewMux()
	tasks.HandlePlan(mux, Fulfil, func(_ context.Context, o Order) (tasks.Signature[string], error) {
		return tasks.Chain(parcel(o), tasks.Bind(Ship, o.Customer)), nil
	})
	tasks.Handle(mux, Reserve, func(_ context.Context, item string) (string, error) { return item, nil })
	tasks.Handle(mux, Wrap, func(_ context.Context, item string) (string, error) { return "wrapped " + item, nil })
	tasks.Handle(mux, Pack, func(_ context.Context, items []string) (string, error) { return strings.Join(items, " and "), nil })
	tasks.Handle(mux, Ship, func(_ context.Context, in tasks.Pair[string, string]) (string, error) {
		return in.First + " for " + in.Second, nil
	})
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer worker.Stop()

	orders := []Order{{"Ann", []string{"tea", "mug"}, true}, {"Bob", []string{"pot"}, false}}
	shipped, err := tasks.Each(orders, Fulfil).Do(ctx, client)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.Join(shipped, "\n"))
}

// Output:
// wrapped tea and wrapped mug for Ann
// pot for Bob
