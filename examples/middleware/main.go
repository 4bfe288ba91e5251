// Middleware wraps every handler of a worker, for logs, traces and the like. It gets the description of the task that
// runs, and the headers that the workflow was sent with.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"muster/tasks"
	"muster/tasks/tasktype"
)

var Order = tasks.New[string, string]("shop.order", tasks.MaxRetry(1), tasks.ConstantBackoff(0))

func order(ctx context.Context, product string) (string, error) {
	if tasks.InfoFrom(ctx).Attempt == 1 {
		return "", errors.New("the shop does not answer")
	}
	return "order of a " + product, nil
}

// logged prints the outcome of every attempt.
func logged(ctx context.Context, info tasktype.Info, next func(context.Context) error) error {
	err := next(ctx)
	fmt.Printf("%s for %s, attempt %d: %v\n", info.Task, info.Headers["customer"], info.Attempt, err)
	return err
}

// guarded runs tasks only for customers that are known.
func guarded(ctx context.Context, info tasktype.Info, next func(context.Context) error) error {
	if info.Headers["customer"] == "" {
		return tasks.Permanent(errors.New("no customer"))
	}
	return next(ctx)
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
	mux.Use(logged, guarded) // the first is the outermost
	tasks.Handle(mux, Order, order)
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		return err
	}
	defer worker.Stop()

	fmt.Println(Order.S("lamp").Do(ctx, client, tasks.Headers(map[string]string{"customer": "Zoe"})))
	fmt.Println(Order.S("lamp").Do(ctx, client))
	return nil
}

// Output:
// shop.order for Zoe, attempt 1: the shop does not answer
// shop.order for Zoe, attempt 2: <nil>
// order of a lamp <nil>
// shop.order for , attempt 1: no customer
//  task shop.order failed: no customer
