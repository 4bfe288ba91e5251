// Fairness gives each customer a turn, however much one of them has sent. Without FairnessKey, Zoe's only image would
// wait for all of Max's images, which were sent before; here it is second.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"

	"muster/tasks"
)

var Resize = tasks.New[string, bool]("images.resize")

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
	var runs []*tasks.AsyncResult[bool]
	send := func(customer string, images ...string) error {
		for _, image := range images {
			run, err := Resize.S(customer+"'s "+image).Send(ctx, client, tasks.FairnessKey(customer))
			if err != nil {
				return err
			}
			runs = append(runs, run)
		}
		return nil
	}
	if err := send("Max", "cat", "dog", "owl", "fox"); err != nil {
		return err
	}
	if err := send("Zoe", "boat"); err != nil {
		return err
	}

	mux := tasks.NewMux()
	tasks.Handle(mux, Resize, func(_ context.Context, image string) (bool, error) {
		fmt.Println(image)
		return true, nil
	})
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{Concurrency: 1})
	if err != nil {
		return err
	}
	defer worker.Stop()

	for _, run := range runs {
		if _, err := run.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Output:
// Max's cat
// Zoe's boat
// Max's dog
// Max's owl
// Max's fox
