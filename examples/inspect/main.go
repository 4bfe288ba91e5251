// Inspect shows the state of work: Observe of a worker is called after every attempt, Nodes lists the tasks of a
// workflow, with their states, times and failures, and WriteTree draws them.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"muster/tasks"
	"muster/tasks/tasktype"
)

var (
	Order = tasks.New[string, string]("shop.order")
	Pack  = tasks.New[string, string]("shop.pack")
	Ship  = tasks.New[[]string, string]("shop.ship")
)

func order(_ context.Context, product string) (string, error) { return product, nil }

func pack(_ context.Context, product string) (string, error) { return "parcel with a " + product, nil }

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
	attempts := make(chan tasktype.Attempt, 100)
	mux := tasks.NewMux()
	tasks.Handle(mux, Order, order)
	tasks.Handle(mux, Pack, pack)
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{Observe: func(a tasktype.Attempt) { attempts <- a }})
	if err != nil {
		return err
	}
	defer worker.Stop()

	if _, err := tasks.Chain(Order.S("lamp"), Pack).Do(ctx, client); err != nil {
		return err
	}
	for range 2 {
		attempt := <-attempts
		fmt.Println(attempt.Task, attempt.Outcome)
	}

	parcels := tasks.Group(tasks.Chain(Order.S("lamp"), Pack), Order.S("cable"))
	run, err := tasks.Chord(parcels, Ship).Send(ctx, client, tasks.In(time.Hour))
	if err != nil {
		return err
	}
	if err := run.Revoke(ctx); err != nil { // so that there are no times to draw
		return err
	}
	nodes, err := client.Nodes(ctx, run.ID())
	if err != nil {
		return err
	}
	return tasks.WriteTree(os.Stdout, nodes, tasks.TreeOptions{})
}

// Output:
// shop.order success
// shop.pack success
// TASK            NODE  STATUS   START  TOOK
// (group)
// ├─ shop.order   0     REVOKED
// │  → shop.pack  1     REVOKED
// └─ shop.order   2     REVOKED
// → shop.ship     4     REVOKED
