// Etl extracts the orders of a shop, transforms them in parallel chunks, loads them, and reports. Chunks with an invalid
// line are counted and skipped. Data warehouses are filled this way every night.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"

	"muster/tasks"
)

// Report contains the totals of a load.
type Report struct{ Orders, Cents, FailedChunks int }

var (
	Extract   = tasks.New[string, [][]string]("etl.extract")                   // from a file, chunks of lines
	Transform = tasks.New[[]string, []int]("etl.transform", tasks.MaxRetry(2)) // from lines, prices in cents
	Load      = tasks.New[[]tasks.Outcome[[]int], Report]("etl.load")
)

func main() {
	ctx := context.Background()
	client, err := tasks.Connect(ctx, cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379/0"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	mux := tasks.NewMux()
	tasks.Handle(mux, Extract, func(_ context.Context, _ string) ([][]string, error) {
		lines := []string{"tea;350", "mug;1200", "pot;4000", "tea;350", "mug;free", "jam;420", "tea;350"}
		return slices.Collect(slices.Chunk(lines, 2)), nil
	})
	tasks.Handle(mux, Transform, func(_ context.Context, lines []string) (prices []int, err error) {
		for _, line := range lines {
			_, price, _ := strings.Cut(line, ";")
			cents, err := strconv.Atoi(price)
			if err != nil {
				return nil, tasks.Permanent(fmt.Errorf("line %q has no price", line)) // a retry would not help
			}
			prices = append(prices, cents)
		}
		return prices, nil
	})
	tasks.Handle(mux, Load, func(_ context.Context, chunks []tasks.Outcome[[]int]) (r Report, err error) {
		for _, chunk := range chunks {
			if chunk.Err != nil {
				r.FailedChunks++
			}
			for _, cents := range chunk.Value { // empty if the chunk has failed
				r.Orders++
				r.Cents += cents
			}
		}
		return r, nil
	})
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer worker.Stop()

	chunks := tasks.Map(Extract.S("orders.csv"), Transform)
	report, err := tasks.Chord(tasks.Settle(chunks), Load).Do(ctx, client)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%+v\n", report)
}

// Output:
// {Orders:5 Cents:6250 FailedChunks:1}
