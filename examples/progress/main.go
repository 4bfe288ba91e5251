// Progress shows how far work is: a long task reports it with SetProgress, the list of nodes shows it while the task
// runs, and Watch yields the numbers of the workflow whenever they change.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"

	"muster/tasks"
)

var Copy = tasks.New[string, bool]("backup.copy")

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
	half, rest := make(chan bool), make(chan bool) // so that the output is the same every time
	mux := tasks.NewMux()
	tasks.Handle(mux, Copy, func(ctx context.Context, folder string) (bool, error) {
		if folder == "films" { // the large one
			tasks.SetProgress(ctx, 50, 100)
			half <- true
			<-rest
		}
		return true, nil
	})
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		return err
	}
	defer worker.Stop()

	run, err := tasks.Each([]string{"letters", "photos", "films"}, Copy).Send(ctx, client)
	if err != nil {
		return err
	}
	<-half
	nodes, err := client.Nodes(ctx, run.ID())
	if err != nil {
		return err
	}
	for _, node := range nodes {
		if node.Total > 0 {
			fmt.Printf("%s: %d of %d GB\n", node.Task, node.Done, node.Total)
		}
	}
	close(rest)
	for progress, err := range run.Watch(ctx) { // a program would draw each
		if err != nil {
			return err
		}
		if progress.Ended {
			fmt.Printf("%s: %d of %d folders\n", progress.Status, progress.Done, progress.Total)
		}
	}
	return nil
}

// Output:
// backup.copy: 50 of 100 GB
// SUCCESS: 3 of 3 folders
