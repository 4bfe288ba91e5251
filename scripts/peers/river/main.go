// Command river is the peer for riverqueue/river: single tasks on PostgreSQL. It uses the default settings, except for the two
// settings of River's benchmark.
package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"muster/scripts/peers/peer"
)

func main() {
	peer.Main(peer.System{Module: "github.com/riverqueue/river", Setup: setup, Work: work, Open: open})
}

type single struct {
	ID int `json:"id"`
}

func (single) Kind() string { return "single" }

type nap struct {
	ID int `json:"id"`
}

func (nap) Kind() string { return "nap" }

type slow struct {
	ID int `json:"id"`
}

func (slow) Kind() string { return "slow" }

func setup(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	m, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return err
	}
	_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

func work(ctx context.Context, url string, concurrency int, ready func()) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, j *river.Job[single]) error {
		return peer.Mark("single", j.Args.ID)
	}))
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, j *river.Job[nap]) error { return peer.Nap(j.Args.ID) }))
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, j *river.Job[slow]) error {
		if err := peer.Mark("slow", j.Args.ID); err != nil {
			return err
		}
		select {
		case <-time.After(peer.SlowFor):
		case <-ctx.Done():
		}
		return ctx.Err()
	}))
	config := &river.Config{
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: concurrency}},
		Workers: workers,
		Logger:  slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if os.Getenv("PEER_DEFAULTS") == "" {
		config.FetchCooldown, config.FetchPollInterval = 2*time.Millisecond, 5*time.Millisecond
	}
	c, err := river.NewClient(riverpgxv5.New(pool), config)
	if err != nil {
		return err
	}
	if err := c.Start(ctx); err != nil {
		return err
	}
	ready()
	<-c.Stopped()
	return nil
}

type sender struct{ client *river.Client[pgx.Tx] }

func open(ctx context.Context, url string) (peer.Sender, error) {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, err
	}
	c, err := river.NewClient(riverpgxv5.New(pool), &river.Config{})
	return sender{c}, err
}

func (s sender) Single(ctx context.Context, id int) error {
	_, err := s.client.Insert(ctx, single{id}, nil)
	return err
}

func (s sender) Slow(ctx context.Context, id int) error {
	_, err := s.client.Insert(ctx, slow{id}, nil)
	return err
}

func (s sender) Chain(context.Context, int, int) error { return peer.ErrNone }
func (s sender) Chord(context.Context, int, int) error { return peer.ErrNone }

func (s sender) Bulk(ctx context.Context, first, n int) error {
	params := make([]river.InsertManyParams, n)
	for i := range params {
		params[i].Args = single{first + i}
	}
	_, err := s.client.InsertManyFast(ctx, params)
	return err
}

func (s sender) Fan(ctx context.Context, n int) error {
	params := make([]river.InsertManyParams, n)
	for i := range params {
		params[i].Args = nap{i}
	}
	_, err := s.client.InsertManyFast(ctx, params)
	return err
}
