// Chord runs a task on the values of a group, once the last of them is in. Here the words of all chapters are counted
// at once, and then added up.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"muster/tasks"
)

var (
	CountWords = tasks.New[string, int]("book.count_words")
	Sum        = tasks.New[[]int, int]("book.sum")
)

func countWords(_ context.Context, chapter string) (int, error) {
	return len(strings.Fields(chapter)), nil
}

func sum(_ context.Context, counts []int) (total int, err error) {
	for _, n := range counts {
		total += n
	}
	return total, nil
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
	tasks.Handle(mux, CountWords, countWords)
	tasks.Handle(mux, Sum, sum)
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		return err
	}
	defer worker.Stop()

	chapters := []string{"It was a dark night", "The rain fell", "Then all was still"}
	words, err := tasks.Chord(tasks.Each(chapters, CountWords), Sum).Do(ctx, client)
	if err != nil {
		return err
	}
	fmt.Println(words, "words")
	return nil
}

// Output:
// 12 words
