// Approval writes a draft and waits for an editor's decision, for up to a week and without occupying a worker.
// Newsrooms, expense reports and releases to production wait for people this way.
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

// Verdict is an editor's decision on a draft.
type Verdict struct {
	Approved bool
	Remark   string
}

var (
	Write   = tasks.New[string, string]("article.write") // on a topic
	Review  = tasks.New[string, Verdict]("article.review", tasks.Timeout(7*24*time.Hour))
	Publish = tasks.New[tasks.Pair[string, Verdict], string]("article.publish")
)

func article(topic string) tasks.Signature[string] {
	draft := Write.S(topic)
	verdict := tasks.Chain(draft, Review)
	return tasks.Chain(tasks.Join(draft, verdict), Publish)
}

func main() {
	ctx := context.Background()
	client, err := tasks.Connect(ctx, cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379/0"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	mux := tasks.NewMux()
	tasks.Handle(mux, Write, func(_ context.Context, topic string) (string, error) { return "All about " + topic, nil })
	mailbox := make(chan string, 1) // of the editor
	tasks.Handle(mux, Review, func(ctx context.Context, draft string) (Verdict, error) {
		token, err := tasks.TokenFrom(ctx)
		if err != nil {
			return Verdict{}, err
		}
		mailbox <- token // any program with the token can complete the task, once
		return tasks.ResultPending[Verdict](ctx)
	})
	tasks.Handle(mux, Publish, func(_ context.Context, in tasks.Pair[string, Verdict]) (string, error) {
		if !in.Second.Approved {
			return fmt.Sprintf("%q goes back: %s", in.First, in.Second.Remark), nil
		}
		return fmt.Sprintf("%q is published", in.First), nil
	})
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer worker.Stop()

	run, err := article("tea").Send(ctx, client)
	if err != nil {
		log.Fatal(err)
	}
	verdict := Verdict{Approved: false, Remark: "write more about milk"}
	if err := Review.Complete(ctx, client, <-mailbox, verdict); err != nil { // the editor's program, days later
		log.Fatal(err)
	}
	result, err := run.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result)
}

// Output:
// "All about tea" goes back: write more about milk
