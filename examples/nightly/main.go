// Nightly creates a sales report every night; a night is 200 ms here. Two machines run the same schedule, so that one may
// be down, and each report is created once. A report that was due while both were down is created late.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"muster/tasks"
)

var Report = tasks.New[time.Time, string]("sales.report", tasks.MaxRetry(5))

// schedule returns the schedule of a machine. It sends the ids of its reports to sent.
func schedule(client *tasks.Client, machine string, sent chan<- string) (*tasks.Scheduler, error) {
	s := tasks.NewScheduler(client, tasks.SchedulerConfig{
		Name:    machine,
		CatchUp: 12 * time.Hour,
		Sent:    func(_, id string) { sent <- id },
	})
	night := func(tick time.Time) tasks.Work { return Report.S(tick.Add(-200 * time.Millisecond)) } // the night before the tick
	return s, s.AddFunc("sales.report", "@every 200ms", night)
}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	client, err := tasks.Connect(ctx, cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379/0"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	mux := tasks.NewMux()
	tasks.Handle(mux, Report, func(_ context.Context, night time.Time) (string, error) {
		return "report of the night of " + night.Format(time.StampMilli), nil
	})
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer worker.Stop()

	var machines sync.WaitGroup
	sent := make(chan string, 100)
	for _, machine := range []string{"first", "second"} {
		s, err := schedule(client, machine, sent)
		if err != nil {
			log.Fatal(err)
		}
		machines.Go(func() { _ = s.Run(ctx) }) // returns nil when ctx is cancelled
	}
	reports := map[string]bool{}
	for range 4 {
		report, err := tasks.Attach[string](client, <-sent).Wait(ctx)
		if err != nil {
			log.Fatal(err)
		}
		reports[report] = true
	}
	stop()
	machines.Wait()
	fmt.Println(len(reports), "different reports")
}

// Output:
// 4 different reports
