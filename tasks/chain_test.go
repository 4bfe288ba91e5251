package tasks_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"muster/tasks"
)

func TestChains(t *testing.T) {
	t.Parallel()
	runRows(t, chainRows)
}

// chainRows are the values of chains.
var chainRows = []row{
	value("chain", func() tasks.Signature[int] {
		return tasks.Chain(tasks.Chain(Add.S(AB{4, 4}), Inc), Double)
	}, 18),
	value("chain of three", func() tasks.Signature[int] { return tasks.Chain3(Add.S(AB{4, 4}), Inc, Double) }, 18),
	value("chain of four", func() tasks.Signature[int] { return tasks.Chain4(Add.S(AB{4, 4}), Inc, Double, Inc) }, 19),
	value("chain of five", func() tasks.Signature[int] { return tasks.Chain5(Add.S(AB{4, 4}), Inc, Double, Inc, Double) }, 38),
	value("chain of one", func() tasks.Signature[int] { return Add.S(AB{3, 4}) }, 7),
	value("priority of a step", func() tasks.Signature[int] {
		return tasks.Chain(Prio.S(0, tasks.Priority(3)), Prio, tasks.Priority(5))
	}, 5),
	value("retried step", func() tasks.Signature[int] { return tasks.Chain(Flaky.S(AB{7, 2}), Inc) }, 8),
	value("an option of the send is over the stored one", func() tasks.Signature[int] { return Prio.S(0, tasks.Priority(5)) }, 4, tasks.Priority(4)),
	value("an option that the send leaves out stays", func() tasks.Signature[int] { return Prio.S(0, tasks.Priority(5)) }, 5, tasks.MaxRetry(1)),
	value("With changes a copy", func() tasks.Signature[int] {
		s := tasks.Chord(tasks.Group(Prio.S(0)), Sum)
		_ = s.With(tasks.Priority(7), tasks.Queue("nowhere"))
		return s
	}, 0),
}

func TestStepsOfChains(t *testing.T) {
	t.Parallel()
	runStories(t, chainStories)
}

// chainStories check more than one value.
var chainStories = []story{
	{"chain of a chain has all steps", func(t *testing.T, w *world) {
		run := sent(t, w, tasks.After(ID.S(1), tasks.Chain(tasks.Chain(ID.S(2), Inc), Inc)))
		if ns := nodes(t, w, run.ID()); len(ns) != 4 {
			t.Fatalf("got nodes %+v, want 4", ns)
		}
		ended(t, w, run.ID())
	}},
	{"id of choice of a chain", func(t *testing.T, w *world) {
		run, err := tasks.Chain(ID.S(1), Inc).Send(t.Context(), w.client, tasks.ID("T"))
		if err != nil || run.ID() != "T" {
			t.Fatalf("got id %v, %v, want T", run.ID(), err)
		}
		if got, err := tasks.Attach[int](w.client, "T").Wait(limited(t)); err != nil || got != 2 {
			t.Fatalf("got %v, %v, want 2", got, err)
		}
	}},
	{"queue of a send", func(t *testing.T, w *world) {
		queues := func(s interface {
			Send(context.Context, *tasks.Client, ...tasks.SendOption) (*tasks.AsyncResult[int], error)
		}) string {
			run, err := s.Send(t.Context(), w.client, tasks.Queue("Q"), tasks.In(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			var out []string
			for _, n := range nodes(t, w, run.ID()) {
				if n.Queue != "" {
					out = append(out, n.Queue)
				}
			}
			if err := run.Revoke(t.Context()); err != nil {
				t.Fatal(err)
			}
			return strings.Join(out, " ")
		}
		if got := queues(tasks.Chain(tasks.Chain(ID.S(1), Inc), Inc)); got != "Q default default" {
			t.Errorf("chain: got queues %s, want Q default default", got)
		}
		if got := queues(tasks.Chord(tasks.Each(ints(3), ID), Sum)); got != "Q Q Q Q" {
			t.Errorf("chord and group: got queues %s, want Q Q Q Q", got)
		}
	}},
}
