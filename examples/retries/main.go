// Retries shows which failures are retried, and when: MaxRetry and Backoff set how often and how soon, RetryIf and
// Permanent which errors. WithCode gives an error a code, so that the caller of Wait can distinguish failures.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"muster/tasks"
)

var errForbidden = errors.New("forbidden")

var Fetch = tasks.New[string, string]("page.fetch",
	tasks.MaxRetry(3), // so at most four attempts
	tasks.Backoff(10*time.Millisecond, time.Second),
	tasks.RetryIf(func(err error) bool { return !errors.Is(err, errForbidden) }))

func fetch(ctx context.Context, page string) (string, error) {
	attempt := tasks.InfoFrom(ctx).Attempt
	switch {
	case page == "/slow" && attempt < 3:
		return "", errors.New("no answer")
	case page == "/gone":
		return "", tasks.Permanent(errors.New("page is gone"))
	case page == "/admin":
		return "", errForbidden
	case page == "/shop":
		return "", tasks.WithCode("blocked", errors.New("too many requests"))
	}
	return fmt.Sprintf("fetched by attempt %d", attempt), nil
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
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		return err
	}
	defer worker.Stop()

	for _, page := range []string{"/home", "/slow", "/gone", "/admin", "/shop"} {
		text, err := Fetch.S(page).Do(ctx, client)
		if f, ok := errors.AsType[*tasks.Failure](err); ok {
			fmt.Printf("%s: %s, attempts %d, code %s\n", page, f.Message, f.Attempts, f.Code)
		} else if err != nil { // not about the page, such as a Redis that does not answer
			return err
		} else {
			fmt.Printf("%s: %s\n", page, text)
		}
	}
	return nil
}

// Output:
// /home: fetched by attempt 1
// /slow: fetched by attempt 3
// /gone: page is gone, attempts 1, code permanent
// /admin: forbidden, attempts 1, code error
// /shop: too many requests, attempts 4, code blocked
