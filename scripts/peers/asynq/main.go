// Command asynq is the peer for hibiken/asynq: single tasks on Redis, with its default settings.
package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/hibiken/asynq"

	"muster/scripts/peers/peer"
)

func main() {
	peer.Main(peer.System{Module: "github.com/hibiken/asynq", Work: work, Open: open})
}

func work(ctx context.Context, url string, concurrency int, ready func()) error {
	opt, err := asynq.ParseRedisURI(url)
	if err != nil {
		return err
	}
	mux := asynq.NewServeMux()
	mux.HandleFunc("nap", func(_ context.Context, t *asynq.Task) error {
		var id int
		if err := json.Unmarshal(t.Payload(), &id); err != nil {
			return err
		}
		return peer.Nap(id)
	})
	for _, kind := range []string{"single", "slow"} {
		mux.HandleFunc(kind, func(ctx context.Context, t *asynq.Task) error {
			var id int
			if err := json.Unmarshal(t.Payload(), &id); err != nil {
				return err
			}
			if err := peer.Mark(kind, id); err != nil || kind == "single" {
				return err
			}
			select {
			case <-time.After(peer.SlowFor):
			case <-ctx.Done():
			}
			return ctx.Err()
		})
	}
	srv := asynq.NewServer(opt, asynq.Config{Concurrency: concurrency, LogLevel: asynq.WarnLevel})
	if err := srv.Start(mux); err != nil {
		return err
	}
	ready()
	<-ctx.Done()
	srv.Shutdown()
	return nil
}

type sender struct{ client *asynq.Client }

func open(_ context.Context, url string) (peer.Sender, error) {
	opt, err := asynq.ParseRedisURI(url)
	if err != nil {
		return nil, err
	}
	return sender{asynq.NewClient(opt)}, nil
}

func (s sender) enqueue(ctx context.Context, kind string, id int) error {
	payload, err := json.Marshal(id)
	if err != nil {
		return err
	}
	_, err = s.client.EnqueueContext(ctx, asynq.NewTask(kind, payload))
	return err
}

func (s sender) Single(ctx context.Context, id int) error { return s.enqueue(ctx, "single", id) }
func (s sender) Slow(ctx context.Context, id int) error   { return s.enqueue(ctx, "slow", id) }
func (s sender) Chain(context.Context, int, int) error    { return peer.ErrNone }
func (s sender) Chord(context.Context, int, int) error    { return peer.ErrNone }
func (s sender) Bulk(context.Context, int, int) error     { return peer.ErrNone }

func (s sender) Fan(ctx context.Context, n int) error {
	for i := range n {
		if err := s.enqueue(ctx, "nap", i); err != nil {
			return err
		}
	}
	return nil
}
