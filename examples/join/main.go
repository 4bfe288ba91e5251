// Join runs two signatures of different types at once and yields both values. A signature that is used twice runs once:
// here the page is fetched one time, and both its title and its words are taken from it.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"sync/atomic"

	"muster/tasks"
)

var (
	Fetch    = tasks.New[string, string]("page.fetch")
	Title    = tasks.New[string, string]("page.title")
	Words    = tasks.New[string, int]("page.words")
	Describe = tasks.New[tasks.Pair[string, int], string]("page.describe")
)

var fetches atomic.Int32

func fetch(_ context.Context, url string) (string, error) {
	fetches.Add(1)
	return "Owls: they hunt by night", nil
}

func title(_ context.Context, page string) (string, error) {
	title, _, _ := strings.Cut(page, ":")
	return title, nil
}

func words(_ context.Context, page string) (int, error) { return len(strings.Fields(page)), nil }

func describe(_ context.Context, p tasks.Pair[string, int]) (string, error) {
	return fmt.Sprintf("%q has %d words", p.First, p.Second), nil
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
	tasks.Handle(mux, Title, title)
	tasks.Handle(mux, Words, words)
	tasks.Handle(mux, Describe, describe)
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		return err
	}
	defer worker.Stop()

	page := Fetch.S("https://birds.example/owls")
	facts := tasks.Join(tasks.Chain(page, Title), tasks.Chain(page, Words))
	text, err := tasks.Chain(facts, Describe).Do(ctx, client)
	if err != nil {
		return err
	}
	fmt.Println(text)
	fmt.Println("fetches:", fetches.Load())
	return nil
}

// Output:
// "Owls" has 5 words
// fetches: 1
