// Testing is a program with a test of its workflow, in main_test.go. The test runs in memory, without Redis, and does not
// wait for retries or for the delay of a day.
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
	Price  = tasks.New[string, int]("shop.price", tasks.MaxRetry(3)) // asks the supplier
	Total  = tasks.New[[]int, int]("shop.total")
	Remind = tasks.New[int, string]("shop.remind")
)

// Checkout adds up the prices of products, and sends a reminder to pay a while later.
func Checkout(products []string, pause time.Duration) tasks.Signature[string] {
	total := tasks.Chord(tasks.Each(products, Price), Total)
	return tasks.Chain(total, Remind, tasks.In(pause))
}

// Mux binds the tasks to their handlers.
func Mux() *tasks.Mux {
	mux := tasks.NewMux()
	tasks.Handle(mux, Price, func(_ context.Context, product string) (int, error) { return 100 * len(product), nil })
	tasks.Handle(mux, Total, func(_ context.Context, prices []int) (sum int, err error) {
		for _, price := range prices {
			sum += price
		}
		return sum, nil
	})
	tasks.Handle(mux, Remind, func(_ context.Context, cents int) (string, error) {
		return fmt.Sprintf("please pay %d cents", cents), nil
	})
	return mux
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
	worker, err := tasks.StartWorker(ctx, client, Mux(), tasks.WorkerConfig{})
	if err != nil {
		return err
	}
	defer worker.Stop()

	text, err := Checkout([]string{"lamp", "chair"}, 50*time.Millisecond).Do(ctx, client)
	if err != nil {
		return err
	}
	fmt.Println(text)
	return nil
}

// Output:
// please pay 900 cents
