// Map runs a task on every element of a list that another task returns, however many there will be. Here the pages of a
// catalog are known only when its index has been read.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"

	"muster/tasks"
)

var (
	Index = tasks.New[string, []string]("catalog.index")
	Fetch = tasks.New[string, int]("catalog.fetch") // from the address of a page to its number of products
	Sum   = tasks.New[[]int, int]("catalog.sum")
)

func index(_ context.Context, site string) ([]string, error) {
	return []string{"/books", "/games", "/toys"}, nil
}

func fetch(_ context.Context, page string) (int, error) {
	return map[string]int{"/books": 120, "/games": 45, "/toys": 80}[page], nil
}

func sum(_ context.Context, counts []int) (total int, err error) {
	for _, n := range counts {
		total += n
	}
	return total, nil
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
	tasks.Handle(mux, Index, index)
	tasks.Handle(mux, Fetch, fetch)
	tasks.Handle(mux, Sum, sum)
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		return err
	}
	defer worker.Stop()

	products := tasks.Map(Index.S("shop.example"), Fetch) // one Fetch for each page
	counts, err := products.Do(ctx, client)
	if err != nil {
		return err
	}
	fmt.Println("products of each page:", counts)

	total, err := tasks.Chord(products, Sum).Do(ctx, client)
	if err != nil {
		return err
	}
	fmt.Println("products:", total)
	return nil
}

// Output:
// products of each page: [120 45 80]
// products: 245
