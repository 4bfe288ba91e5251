// Images downloads pictures, makes thumbnails of each in three sizes at once, and writes a
// manifest when the last thumbnail is there. Shops and news sites run such a pipeline on every upload.
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"slices"

	"muster/tasks"
)

// Files are in a store, and tasks pass on their names.
var (
	Download  = tasks.New[string, string]("images.download", tasks.MaxRetry(3))
	Thumbnail = tasks.New[tasks.Pair[string, int], string]("images.thumbnail") // of a file and a width
	Manifest  = tasks.New[[][]string, string]("images.manifest")
)

// thumbnails starts when its own picture is downloaded, and does not wait for the others.
func thumbnails(url tasks.Signature[string]) tasks.Signature[[]string] {
	picture := tasks.Chain(url, Download)
	return tasks.Group(
		tasks.Chain(picture, tasks.Bind(Thumbnail, 640)),
		tasks.Chain(picture, tasks.Bind(Thumbnail, 320)),
		tasks.Chain(picture, tasks.Bind(Thumbnail, 64)))
}

func main() {
	ctx := context.Background()
	camera := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "a picture")
	}))
	defer camera.Close()
	client, err := tasks.Connect(ctx, cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379/0"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	mux := tasks.NewMux()
	tasks.Handle(mux, Download, func(_ context.Context, url string) (string, error) {
		resp, err := http.Get(url)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body) // a program copies it to its store
		return path.Base(url), err
	})
	tasks.Handle(mux, Thumbnail, func(_ context.Context, in tasks.Pair[string, int]) (string, error) {
		return fmt.Sprintf("%d/%s", in.Second, in.First), nil // a program scales the file
	})
	tasks.Handle(mux, Manifest, func(_ context.Context, thumbnails [][]string) (string, error) {
		return fmt.Sprintf("%d pictures: %v", len(thumbnails), slices.Concat(thumbnails...)), nil
	})
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer worker.Stop()

	urls := tasks.Value([]string{camera.URL + "/cat.png", camera.URL + "/dog.png"})
	manifest, err := tasks.Chord(tasks.MapFunc(urls, thumbnails), Manifest).Do(ctx, client)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(manifest)
}

// Output:
// 2 pictures: [640/cat.png 320/cat.png 64/cat.png 640/dog.png 320/dog.png 64/dog.png]
