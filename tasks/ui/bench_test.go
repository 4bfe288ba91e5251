package ui

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"muster/tasks"
	"muster/tasks/redistest"
)

// BenchmarkPages renders pages of a store with 2,000 workflows and one of 10,000 nodes.
func BenchmarkPages(b *testing.B) {
	client := tasks.NewClient(redistest.Server(b).Client())
	defer client.Close()
	mux := tasks.NewMux()
	tasks.Handle(mux, inc, func(_ context.Context, n int) (int, error) { return n + 1, nil })
	worker, err := tasks.StartWorker(b.Context(), client, mux, tasks.WorkerConfig{Concurrency: 8})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = worker.Stop() }()
	var last *tasks.AsyncResult[int]
	for i := range 2000 {
		if last, err = inc.S(i).Send(b.Context(), client); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := last.Wait(b.Context()); err != nil {
		b.Fatal(err)
	}
	big, err := tasks.Each(make([]int, 10_000), inc).Send(b.Context(), client)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := big.Wait(b.Context()); err != nil {
		b.Fatal(err)
	}
	h := Handler(client, Config{Prefix: "/tasks"})
	for name, path := range map[string]string{"overview": "/", "workflows": "/workflows", "workflow of 10000": "/workflows/" + big.ID()} {
		b.Run(name, func(b *testing.B) {
			size := 0
			for b.Loop() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/tasks"+path, nil))
				if w.Code != http.StatusOK {
					b.Fatalf("%s: got status %d", path, w.Code)
				}
				size = w.Body.Len()
			}
			b.ReportMetric(float64(size)/1024, "KB")
		})
	}
}
