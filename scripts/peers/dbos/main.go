// Command dbos is the peer for DBOS Transact: workflows on PostgreSQL. A single task is a workflow of a queue, a chain is one with
// sequential steps, and a chord one with concurrent steps. Settings are the defaults, except for the polling interval, which is the
// one of River: with the default of a second, a queue starts no more workflows per second than it has slots.
package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"

	"muster/scripts/peers/peer"
)

const (
	app   = "peer"
	queue = "peer"

	pollEvery = 5 * time.Millisecond
)

func main() {
	peer.Main(peer.System{Module: "github.com/dbos-inc/dbos-transact-golang", Setup: setup, Work: work, Open: open})
}

type flow struct{ ID, Size int }

func single(_ dbos.Context, f flow) (int, error) { return f.ID, peer.Mark("single", f.ID) }
func nap(_ dbos.Context, f flow) (int, error)    { return f.ID, peer.Nap(f.ID) }

func slow(ctx dbos.Context, f flow) (int, error) {
	if err := peer.Mark("slow", f.ID); err != nil {
		return 0, err
	}
	select {
	case <-time.After(peer.SlowFor):
	case <-ctx.Done():
	}
	return f.ID, ctx.Err()
}

func chain(ctx dbos.Context, f flow) (int, error) {
	id := f.ID
	for range f.Size {
		var err error
		if id, err = dbos.RunAsStep(ctx, func(context.Context) (int, error) { return id, peer.Mark("step", id) }); err != nil {
			return 0, err
		}
	}
	return id, nil
}

func chord(ctx dbos.Context, f flow) (int, error) {
	outcomes := make([]<-chan dbos.StepOutcome[int], f.Size)
	for i := range outcomes {
		var err error
		if outcomes[i], err = dbos.Go(ctx, func(context.Context) (int, error) { return f.ID, peer.Mark("member", f.ID) }); err != nil {
			return 0, err
		}
	}
	results := 0
	for _, c := range outcomes {
		if o := <-c; o.Err != nil {
			return 0, o.Err
		}
		results++
	}
	return dbos.RunAsStep(ctx, func(context.Context) (int, error) { return f.ID, peer.MarkBody(f.ID, results, f.Size) })
}

var quiet = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))

func setup(ctx context.Context, url string) error { return dbos.Migrate(ctx, url) }

func work(ctx context.Context, url string, concurrency int, ready func()) error {
	c, err := dbos.NewContext(ctx, dbos.Config{AppName: app, DatabaseURL: url, Logger: quiet})
	if err != nil {
		return err
	}
	for name, f := range map[string]dbos.Workflow[flow, int]{"single": single, "nap": nap, "slow": slow, "chain": chain, "chord": chord} {
		dbos.RegisterWorkflow(c, f, dbos.WithWorkflowName(name))
	}
	if err := dbos.Launch(c); err != nil {
		return err
	}
	if _, err := dbos.RegisterQueue(c, queue, dbos.WithWorkerConcurrency(concurrency), dbos.WithQueueBasePollingInterval(pollEvery)); err != nil {
		return err
	}
	ready()
	<-ctx.Done()
	return dbos.Shutdown(c, time.Second)
}

type sender struct{ client dbos.Client }

func open(ctx context.Context, url string) (peer.Sender, error) {
	c, err := dbos.NewClient(ctx, dbos.ClientConfig{DatabaseURL: url, AppName: app, Logger: quiet})
	return sender{c}, err
}

func (s sender) enqueue(name string, f flow) error {
	_, err := dbos.Enqueue[int](s.client, queue, name, f)
	return err
}

func (s sender) Single(_ context.Context, id int) error { return s.enqueue("single", flow{ID: id}) }
func (s sender) Slow(_ context.Context, id int) error   { return s.enqueue("slow", flow{ID: id}) }
func (s sender) Chain(_ context.Context, id, steps int) error {
	return s.enqueue("chain", flow{id, steps})
}
func (s sender) Chord(_ context.Context, id, members int) error {
	return s.enqueue("chord", flow{id, members})
}
func (s sender) Bulk(context.Context, int, int) error { return peer.ErrNone }

func (s sender) Fan(_ context.Context, n int) error {
	var errs []error
	for i := range n {
		errs = append(errs, s.enqueue("nap", flow{ID: i}))
	}
	return errors.Join(errs...)
}
