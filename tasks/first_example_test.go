package tasks_test

import (
	"context"
	"fmt"

	"muster/tasks"
	"muster/tasks/redistest"
)

// Twice is declared apart from its code, so that who sends it imports no handler.
var Twice = tasks.New[int, int]("numbers.twice")

// A first task: a worker that knows its code, and a client that sends it and waits for the value.
func Example() {
	url, end := redistest.ExampleURL() // of a program: redis://localhost:6379
	defer end()
	ctx, stop := context.WithCancel(context.Background())
	client, err := tasks.Connect(ctx, url)
	must(err)

	mux := tasks.NewMux()
	tasks.Handle(mux, Twice, func(_ context.Context, n int) (int, error) { return 2 * n, nil })
	worker, err := tasks.NewWorker(client, mux, tasks.WorkerConfig{})
	must(err)
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()

	run, err := Twice.S(21).Send(ctx, client)
	must(err)
	answer, err := run.Wait(ctx)
	must(err)
	fmt.Println(answer)

	stop() // lets running tasks finish
	must(<-done)
	must(client.Close())
	// Output: 42
}
