// Command muster is the peer for Muster, with default settings.
package main

import (
	"context"
	"time"

	"muster/scripts/peers/peer"
	"muster/tasks"
)

type member struct{ Chord, Size int }

var (
	single = tasks.New[int, int]("single")
	slow   = tasks.New[int, int]("slow")
	nap    = tasks.New[int, int]("nap")
	step   = tasks.New[int, int]("step")
	each   = tasks.New[member, member]("member")
	body   = tasks.New[[]member, int]("body")
)

func main() {
	peer.Main(peer.System{Module: "muster", Work: work, Open: open})
}

func work(ctx context.Context, url string, concurrency int, ready func()) error {
	c, err := tasks.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer c.Close()
	mux := tasks.NewMux()
	tasks.Handle(mux, single, func(_ context.Context, id int) (int, error) { return id, peer.Mark("single", id) })
	tasks.Handle(mux, nap, func(_ context.Context, id int) (int, error) { return id, peer.Nap(id) })
	tasks.Handle(mux, step, func(_ context.Context, id int) (int, error) { return id, peer.Mark("step", id) })
	tasks.Handle(mux, each, func(_ context.Context, m member) (member, error) { return m, peer.Mark("member", m.Chord) })
	tasks.Handle(mux, body, func(_ context.Context, ms []member) (int, error) {
		return ms[0].Chord, peer.MarkBody(ms[0].Chord, len(ms), ms[0].Size)
	})
	tasks.Handle(mux, slow, func(ctx context.Context, id int) (int, error) {
		if err := peer.Mark("slow", id); err != nil {
			return 0, err
		}
		select {
		case <-time.After(peer.SlowFor):
		case <-ctx.Done():
		}
		return id, ctx.Err()
	})
	w, err := tasks.NewWorker(c, mux, tasks.WorkerConfig{Concurrency: concurrency, Ready: ready})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

type sender struct{ client *tasks.Client }

func open(ctx context.Context, url string) (peer.Sender, error) {
	c, err := tasks.Connect(ctx, url)
	return sender{c}, err
}

func (s sender) Single(ctx context.Context, id int) error {
	_, err := single.S(id).Send(ctx, s.client)
	return err
}

func (s sender) Slow(ctx context.Context, id int) error {
	_, err := slow.S(id).Send(ctx, s.client)
	return err
}

func (s sender) Chain(ctx context.Context, id, steps int) error {
	sig := step.S(id)
	for range steps - 1 {
		sig = tasks.Chain(sig, step)
	}
	_, err := sig.Send(ctx, s.client)
	return err
}

func (s sender) Chord(ctx context.Context, id, members int) error {
	ms := make([]member, members)
	for i := range ms {
		ms[i] = member{id, members}
	}
	_, err := tasks.Chord(tasks.Each(ms, each), body).Send(ctx, s.client)
	return err
}

// Bulk sends a group as one workflow.
func (s sender) Bulk(ctx context.Context, first, n int) error { return s.group(ctx, single, first, n) }
func (s sender) Fan(ctx context.Context, n int) error         { return s.group(ctx, nap, 0, n) }

func (s sender) group(ctx context.Context, of tasks.Task[int, int], first, n int) error {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = first + i
	}
	_, err := tasks.Each(ids, of).Send(ctx, s.client)
	return err
}
