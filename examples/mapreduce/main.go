// Mapreduce counts the words of documents: tasks count those of each document, in parts by first
// letter, and then a task for each part adds them up. Log analysis and search indexes are built this way.
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

const parts = 3 // how many tasks reduce at once

// Counts is how often words occur.
type Counts map[string]int

var (
	Count   = tasks.New[string, []Counts]("words.count")         // of a document, its parts
	Shuffle = tasks.New[[][]Counts, [][]Counts]("words.shuffle") // from parts by document, documents by part
	Reduce  = tasks.New[[]Counts, Counts]("words.reduce")
)

func wordCount(documents []string) tasks.Signature[Counts] {
	mapped := tasks.Each(documents, Count)
	reduced := tasks.Map(tasks.Chord(mapped, Shuffle), Reduce)
	return tasks.Chord(reduced, Reduce) // no word is in two parts
}

func main() {
	ctx := context.Background()
	client, err := tasks.Connect(ctx, cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379/0"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	mux := tasks.NewMux()
	tasks.Handle(mux, Count, func(_ context.Context, document string) ([]Counts, error) {
		counts := [parts]Counts{{}, {}, {}}
		for word := range strings.FieldsSeq(strings.ToLower(document)) {
			counts[word[0]%parts][word]++
		}
		return counts[:], nil
	})
	tasks.Handle(mux, Shuffle, func(_ context.Context, documents [][]Counts) ([][]Counts, error) {
		byPart := make([][]Counts, parts)
		for _, counts := range documents {
			for part := range byPart {
				byPart[part] = append(byPart[part], counts[part])
			}
		}
		return byPart, nil
	})
	tasks.Handle(mux, Reduce, func(_ context.Context, all []Counts) (Counts, error) {
		sum := Counts{}
		for _, counts := range all {
			for word, n := range counts {
				sum[word] += n
			}
		}
		return sum, nil
	})
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer worker.Stop()

	counts, err := wordCount([]string{"To be or not to be", "The rest is silence", "Be not afraid"}).Do(ctx, client)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(counts)
}

// Output:
// map[afraid:1 be:3 is:1 not:2 or:1 rest:1 silence:1 the:1 to:2]
