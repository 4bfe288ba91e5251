// Parts reads values of parts of a workflow: ValueOf takes a signature that the workflow was built from, NodeValue the
// id of a node, for programs that only know the id of the workflow.
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
	Resize = tasks.New[int, string]("images.resize")
	Album  = tasks.New[[]string, string]("images.album")
)

func resize(_ context.Context, width int) (string, error) { return fmt.Sprint("image of ", width), nil }

func album(_ context.Context, images []string) (string, error) {
	return fmt.Sprintf("album of %d", len(images)), nil
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
	tasks.Handle(mux, Resize, resize)
	tasks.Handle(mux, Album, album)
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		return err
	}
	defer worker.Stop()

	cover := Resize.S(1600)
	run, err := tasks.Chord(tasks.Group(cover, Resize.S(200)), Album).Send(ctx, client)
	if err != nil {
		return err
	}
	image, err := tasks.ValueOf(ctx, run, cover)
	if err != nil {
		return err
	}
	fmt.Println("cover:", image)

	nodes, err := client.Nodes(ctx, run.ID())
	if err != nil {
		return err
	}
	for _, node := range nodes {
		if node.Task == Resize.Name() {
			value, err := tasks.NodeValue[string](ctx, client, run.ID(), node.ID)
			if err != nil {
				return err
			}
			fmt.Printf("node %s: %s\n", node.ID, value)
		}
	}
	return nil
}

// Output:
// cover: image of 1600
// node 0: image of 1600
// node 1: image of 200
