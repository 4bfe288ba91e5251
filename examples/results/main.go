// Results reads the values of a list before all of them are known: AsCompleted yields its members as they end, the quick
// ones first, and Members returns those that have ended so far.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"

	"muster/tasks"
)

var Resize = tasks.New[int, string]("images.resize")

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
	smallSeen := make(chan struct{}) // closed once the small image is known to have ended
	mux := tasks.NewMux()
	tasks.Handle(mux, Resize, func(_ context.Context, width int) (string, error) {
		if width > 1000 {
			<-smallSeen // a large image takes longer
		}
		return fmt.Sprint("image of ", width), nil
	})
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		return err
	}
	defer worker.Stop()

	run, err := tasks.Each([]int{1600, 200}, Resize).Send(ctx, client)
	if err != nil {
		return err
	}
	for member, err := range tasks.AsCompleted(ctx, run) {
		if err != nil {
			return err
		}
		fmt.Printf("member %d: %s\n", member.Index, member.Value)
		if member.Index == 1 {
			values, done, err := tasks.Members(ctx, run)
			if err != nil {
				return err
			}
			fmt.Printf("so far: %q %v\n", values, done)
			close(smallSeen)
		}
	}
	images, err := run.Wait(ctx) // all of them, in their order
	fmt.Printf("all: %q\n", images)
	return err
}

// Output:
// member 1: image of 200
// so far: ["" "image of 200"] [false true]
// member 0: image of 1600
// all: ["image of 1600" "image of 200"]
