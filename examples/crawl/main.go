// Crawl visits every page of a site in parallel, without knowing their number: each level contains the pages that the
// previous level links to. Search engines and link checkers fan out this way.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"slices"

	"muster/tasks"
)

// Frontier contains the visited pages and the pages to visit next.
type Frontier struct{ Seen, Next []string }

var (
	Crawl = tasks.New[Frontier, []string]("crawl.level")
	Links = tasks.New[string, []string]("crawl.links", tasks.MaxRetry(3)) // of a page
	Merge = tasks.New[tasks.Pair[[][]string, []string], Frontier]("crawl.merge")
)

// level is the plan of Crawl: it visits all pages of a level in parallel, then the next level.
func level(_ context.Context, f Frontier) (tasks.Signature[[]string], error) {
	if len(f.Next) == 0 {
		return tasks.Value(f.Seen), nil
	}
	links := tasks.Each(f.Next, Links, tasks.AtMost(4))
	next := tasks.Chord(links, tasks.Bind(Merge, slices.Concat(f.Seen, f.Next)))
	return tasks.Chain(next, Crawl), nil
}

// merge returns the next level: the linked pages that were not visited yet.
func merge(_ context.Context, in tasks.Pair[[][]string, []string]) (Frontier, error) {
	f := Frontier{Seen: in.Second}
	for _, page := range slices.Concat(in.First...) {
		if !slices.Contains(slices.Concat(f.Seen, f.Next), page) {
			f.Next = append(f.Next, page)
		}
	}
	return f, nil
}

// site maps each page to its links.
var site = map[string][]string{
	"/":          {"/tea", "/mugs"},
	"/tea":       {"/", "/tea/green", "/tea/black"},
	"/mugs":      {"/tea", "/mugs/blue"},
	"/tea/green": {"/tea/black"},
}

func main() {
	ctx := context.Background()
	client, err := tasks.Connect(ctx, cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379/0"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	mux := tasks.NewMux()
	tasks.HandlePlan(mux, Crawl, level)
	tasks.Handle(mux, Links, func(_ context.Context, page string) ([]string, error) { return site[page], nil })
	tasks.Handle(mux, Merge, merge)
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer worker.Stop()

	visited, err := Crawl.S(Frontier{Next: []string{"/"}}).Do(ctx, client)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(visited)
}

// Output:
// [/ /tea /mugs /tea/green /tea/black /mugs/blue]
