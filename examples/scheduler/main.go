// Scheduler sends work at given times: by cron expressions, or at intervals. Any number of schedulers may run with the
// same entries; each tick is sent once. Here the interval is short, and the program ends after two backups.
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
	Backup = tasks.New[string, string]("nightly.backup")
	Report = tasks.New[string, string]("nightly.report")
)

func backup(_ context.Context, folder string) (string, error) { return "backup of " + folder, nil }

func report(_ context.Context, day string) (string, error) { return "report of " + day, nil }

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
	tasks.Handle(mux, Backup, backup)
	tasks.Handle(mux, Report, report)
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		return err
	}
	defer worker.Stop()

	sent := make(chan string, 100) // ids of workflows
	scheduler := tasks.NewScheduler(client, tasks.SchedulerConfig{Sent: func(_, id string) { sent <- id }})
	if err := scheduler.Add("backup", "@every 50ms", Backup.S("home")); err != nil {
		return err
	}
	if err := scheduler.Add("report", "CRON_TZ=Europe/Berlin 30 6 * * MON", Report.S("week")); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- scheduler.Run(ctx) }()

	for range 2 {
		text, err := tasks.Attach[string](client, <-sent).Wait(ctx)
		if err != nil {
			return err
		}
		fmt.Println(text)
	}
	stop()
	return <-ended
}

// Output:
// backup of home
// backup of home
