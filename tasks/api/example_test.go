package api_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"muster/internal/redistest"
	"muster/tasks"
	"muster/tasks/api"
)

// A program serves its tasks to clients in any language.
func ExampleHandler() {
	rdb, stop := redistest.Example()
	defer stop()
	client := tasks.NewClient(rdb)
	mux := tasks.NewMux()
	tasks.Handle(mux, tasks.New[string, int]("text.count"), func(_ context.Context, text string) (int, error) {
		return len(strings.Fields(text)), nil
	})
	worker, err := tasks.StartWorker(context.Background(), client, mux, tasks.WorkerConfig{})
	must(err)
	defer func() { must(worker.Stop()) }()

	handler, err := api.Handler(api.Config{Client: client})
	must(err)
	server := httptest.NewServer(handler)
	defer server.Close()

	res, err := http.Post(server.URL+"/v1/workflows", "application/json", strings.NewReader(`{"task": "text.count", "input": "it was dark", "id": "first"}`))
	must(err)
	must(res.Body.Close())
	res, err = http.Get(server.URL + "/v1/workflows/first/result?wait=30s")
	must(err)
	body, err := io.ReadAll(res.Body)
	must(err)
	must(res.Body.Close())
	fmt.Printf("%s", body)
	// Output: {"status":"SUCCESS","result":3}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
