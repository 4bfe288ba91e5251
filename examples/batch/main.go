// Batch sends a newsletter to 200 subscribers and counts the mails. The mail service accepts 100 mails per half second and
// 4 concurrent ones; the limits hold for all workers together. Mailings and calls of paid APIs are such batches.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"sync/atomic"
	"time"

	"muster/tasks"
)

var (
	mails = tasks.Rate("newsletter.mails", 100, time.Second/2)
	Mail  = tasks.New[string, bool]("newsletter.mail", tasks.Limited[string](mails, nil), tasks.MaxRetry(3))
	Count = tasks.New[[]bool, int]("newsletter.count")
)

func main() {
	ctx := context.Background()
	client, err := tasks.Connect(ctx, cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379/0"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	mux := tasks.NewMux()
	var open atomic.Int64 // concurrent connections to the mail service
	tasks.Handle(mux, Mail, func(_ context.Context, _ string) (bool, error) {
		defer open.Add(-1)
		if now := open.Add(1); now > 4 {
			return false, fmt.Errorf("too many connections: %d", now)
		}
		return true, nil
	})
	tasks.Handle(mux, Count, func(_ context.Context, sent []bool) (int, error) { return len(sent), nil })
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{Concurrency: 16})
	if err != nil {
		log.Fatal(err)
	}
	defer worker.Stop()

	subscribers := make([]string, 200)
	for i := range subscribers {
		subscribers[i] = fmt.Sprintf("reader%d@example.org", i+1)
	}
	mails := tasks.Each(subscribers, Mail, tasks.AtMost(4))
	sent, err := tasks.Chord(mails, Count).Do(ctx, client)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sent, "mails sent")
}

// Output:
// 200 mails sent
