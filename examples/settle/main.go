// Settle turns the failures of a group into values, so that one member that fails does not fail the others. Here the
// report includes all pages, those that could be fetched and those that could not.
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
	Fetch  = tasks.New[string, int]("site.fetch") // yields the size of a page
	Report = tasks.New[[]tasks.Outcome[int], string]("site.report")
)

func fetch(_ context.Context, page string) (int, error) {
	if page == "/old" {
		return 0, errors.New("not found")
	}
	return 100 * len(page), nil
}

func report(_ context.Context, pages []tasks.Outcome[int]) (string, error) {
	size, failed := 0, 0
	for _, page := range pages {
		if page.Err != nil {
			failed++
			continue
		}
		size += page.Value
	}
	return fmt.Sprintf("%d bytes, %d of %d pages failed", size, failed, len(pages)), nil
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
	tasks.Handle(mux, Fetch, fetch)
	tasks.Handle(mux, Report, report)
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		return err
	}
	defer worker.Stop()

	pages := tasks.Each([]string{"/", "/old", "/about"}, Fetch)

	_, err = pages.Do(ctx, client)
	fmt.Println("without Settle:", err)

	text, err := tasks.Chord(tasks.Settle(pages), Report).Do(ctx, client)
	if err != nil {
		return err
	}
	fmt.Println("with Settle:", text)
	return nil
}

// Output:
// without Settle: task site.fetch failed: not found
// with Settle: 700 bytes, 1 of 3 pages failed
