// Group runs work at once and yields the values in the order given, whatever ends first. Each makes a group that runs
// one task on every element of a list that the sender knows.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"

	"muster/tasks"
)

type Image struct {
	File  string
	Width int
}

var (
	Resize    = tasks.New[Image, string]("images.resize")
	Watermark = tasks.New[string, string]("images.watermark")
)

func resize(_ context.Context, i Image) (string, error) {
	return fmt.Sprintf("%d-%s", i.Width, i.File), nil
}

func watermark(_ context.Context, file string) (string, error) { return "marked-" + file, nil }

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
	tasks.Handle(mux, Watermark, watermark)
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		return err
	}
	defer worker.Stop()

	small, large := Image{"cat.jpg", 200}, Image{"cat.jpg", 1600}
	files, err := tasks.Group(
		Resize.S(small),
		tasks.Chain(Resize.S(large), Watermark), // members may be of any shape, if they yield the same type
	).Do(ctx, client)
	if err != nil {
		return err
	}
	fmt.Println(files)

	images := []Image{{"cat.jpg", 400}, {"dog.jpg", 400}, {"owl.jpg", 400}}
	files, err = tasks.Each(images, Resize).Do(ctx, client)
	if err != nil {
		return err
	}
	fmt.Println(files)
	return nil
}

// Output:
// [200-cat.jpg marked-1600-cat.jpg]
// [400-cat.jpg 400-dog.jpg 400-owl.jpg]
