// Outsidejob starts a job at an outside service and polls its state until it is done, with a limit for the whole
// time. No worker is held in between. Video encoders, payment providers and clusters are used this way.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"time"

	"muster/tasks"
)

var (
	Encode = tasks.New[string, string]("video.encode", tasks.MaxRetry(3)) // yields a job
	Poll   = tasks.New[string, string]("video.poll", tasks.MaxRetry(3))   // of a job
)

func main() {
	ctx := context.Background()
	service := http.NewServeMux()
	service.HandleFunc("POST /encode/{video}", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "/jobs/"+r.PathValue("video")) })
	service.HandleFunc("POST /jobs/endless.mov", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "encoding") })
	var polls atomic.Int64
	service.HandleFunc("POST /jobs/short.mov", func(w http.ResponseWriter, r *http.Request) {
		states := []string{"queued", "encoding", "encoding", "done"}
		fmt.Fprint(w, states[min(int(polls.Add(1)), len(states))-1])
	})
	server := httptest.NewServer(service)
	defer server.Close()
	client, err := tasks.Connect(ctx, cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379/0"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	mux := tasks.NewMux()
	tasks.Handle(mux, Encode, func(_ context.Context, video string) (string, error) { return post(server.URL + "/encode/" + video) })
	tasks.Handle(mux, Poll, func(_ context.Context, job string) (string, error) {
		state, err := post(server.URL + job)
		if err == nil && state != "done" {
			return "", tasks.Again(10 * time.Millisecond)
		}
		return job + " is " + state, err
	})
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer worker.Stop()

	short, err := tasks.Chain(Encode.S("short.mov"), Poll, tasks.Expires(time.Hour)).Do(ctx, client)
	if err != nil {
		log.Fatal(err)
	}
	_, err = tasks.Chain(Encode.S("endless.mov"), Poll, tasks.Expires(time.Second/5)).Do(ctx, client)
	fmt.Println(short)
	fmt.Println("gave up the other:", errors.Is(err, tasks.ErrRevoked))
}

func post(url string) (string, error) {
	resp, err := http.Post(url, "", nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// Output:
// /jobs/short.mov is done
// gave up the other: true
