// Nightly creates a sales report every night; a night is 200 ms here. Any number of machines run the same program: each report is created
// once, and a report that was due while all were down is created late.
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

var Report = tasks.New[string, string]("sales.report", tasks.MaxRetry(5))

const night = 200 * time.Millisecond

func main() {
	ctx := context.Background()
	client, err := tasks.Connect(ctx, cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379/0"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	reports := make(chan string, 100)
	mux := tasks.NewMux()
	tasks.Handle(mux, Report, func(ctx context.Context, shop string) (string, error) {
		before := tasks.InfoFrom(ctx).Tick.Add(-night) // the night before the tick
		reports <- shop + " " + before.Format(time.StampMilli)
		return "", nil
	})
	for range 2 {
		worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
		if err != nil {
			log.Fatal(err)
		}
		defer worker.Stop()
	}
	if err := client.Schedules().Sync(ctx, "nightly", []tasks.Schedule{{Name: "sales.report", Spec: "@every " + night.String(), Work: Report.S("Berlin"), CatchUp: 1}}); err != nil {
		log.Fatal(err)
	}
	different := map[string]bool{}
	for range 4 {
		different[<-reports] = true
	}
	if err := client.Schedules().Sync(ctx, "nightly", nil); err != nil { // only for this example
		log.Fatal(err)
	}
	fmt.Println(len(different), "different reports")
}

// Output:
// 4 different reports
