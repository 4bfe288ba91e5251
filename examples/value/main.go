// Value adds a constant to a workflow, without a task. Bind sets the second half of the input of a task, so that a
// chain, a chord or a map passes only the first half.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"

	"muster/tasks"
)

type Converted = tasks.Pair[int, float64] // cents, and the rate to convert them by

var (
	Prices  = tasks.New[string, []int]("shop.prices")
	Convert = tasks.New[Converted, int]("shop.convert")
	Compare = tasks.New[tasks.Pair[[]int, []int], string]("shop.compare")
)

func prices(_ context.Context, shop string) ([]int, error) { return []int{100, 2000}, nil }

func convert(_ context.Context, c Converted) (int, error) {
	return int(float64(c.First) * c.Second), nil
}

func compare(_ context.Context, p tasks.Pair[[]int, []int]) (string, error) {
	return fmt.Sprintf("theirs %v, ours %v", p.First, p.Second), nil
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
	tasks.Handle(mux, Prices, prices)
	tasks.Handle(mux, Convert, convert) // of the task as it was declared: Bind is for senders
	tasks.Handle(mux, Compare, compare)
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		return err
	}
	defer worker.Stop()

	theirs := tasks.Map(Prices.S("paper.example"), tasks.Bind(Convert, 0.5))
	ours := tasks.Value([]int{45, 990})
	text, err := tasks.Chain(tasks.Join(theirs, ours), Compare).Do(ctx, client)
	if err != nil {
		return err
	}
	fmt.Println(text)
	return nil
}

// Output:
// theirs [50 1000], ours [45 990]
