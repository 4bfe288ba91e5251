// Mapfunc runs more than one task on every element of a list that another task returns. The function gets a signature
// that stands for an element and says what to do with it; it is called once, before anything runs.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"

	"muster/tasks"
)

type Copies = tasks.Pair[string, string] // of an image: the small one and the gray one

var (
	List   = tasks.New[string, []string]("album.list")
	Shrink = tasks.New[string, string]("album.shrink")
	Gray   = tasks.New[string, string]("album.gray")
	Upload = tasks.New[Copies, string]("album.upload")
)

func list(_ context.Context, album string) ([]string, error) {
	return []string{album + "/beach.jpg", album + "/boat.jpg"}, nil
}

func shrink(_ context.Context, image string) (string, error) { return "small " + image, nil }

func gray(_ context.Context, image string) (string, error) { return "gray " + image, nil }

func upload(_ context.Context, c Copies) (string, error) { return c.First + " and " + c.Second, nil }

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
	tasks.Handle(mux, List, list)
	tasks.Handle(mux, Shrink, shrink)
	tasks.Handle(mux, Gray, gray)
	tasks.Handle(mux, Upload, upload)
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		return err
	}
	defer worker.Stop()

	uploads := tasks.MapFunc(List.S("summer"), func(image tasks.Signature[string]) tasks.Signature[string] {
		small := tasks.Chain(image, Shrink)
		gray := tasks.Chain(image, Gray)
		return tasks.Chain(tasks.Join(small, gray), Upload)
	})
	uploaded, err := uploads.Do(ctx, client)
	if err != nil {
		return err
	}
	for _, copies := range uploaded {
		fmt.Println(copies)
	}
	return nil
}

// Output:
// small summer/beach.jpg and gray summer/beach.jpg
// small summer/boat.jpg and gray summer/boat.jpg
