package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
)

// Workflows that are sent one after another with one id have nothing in common but the id, for workers, senders and
// readers that know the earlier ones. The ids have the forms of people and of generated ids.
func TestReusedID(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"order-17", "d5jq0l2m3n4p5q6r7s8t9uav"} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.New(t)
			w := newWorld(t, rdb)
			reader := tasks.NewClient(rdb) // it knows each workflow, like another process
			t.Cleanup(func() { _ = reader.Close() })
			shapes := []tasks.Signature[int]{
				tasks.Chord(tasks.Each(ints(5), ID), Sum),
				tasks.Chord(tasks.Each(ints(3), ID), Sum),
				tasks.Chain(ID.S(20), Inc),
				ID.S(7),
				ChordPlan.S(3),
				ChordPlan.S(4),
			}
			for i, want := range []int{10, 3, 21, 7, 6, 7} {
				run := sent(t, w, shapes[i], tasks.ID(id))
				attached := tasks.Attach[int](reader, id)
				for _, handle := range []*tasks.Run[int]{attached, run} {
					wantValue(t, handle, want)
				}
				testutil.Ok(t, attached.WaitAll(limited(t)))
				if d, err := run.Detail(t.Context()); err != nil || d.ID != id || run.ID() != id {
					t.Fatalf("send %d: got details of %s, %v, want %s", i, d.ID, err, id)
				}
				if d, err := run.Info(t.Context()); err != nil || d.ID != id {
					t.Fatalf("send %d: got summary of %s, %v, want %s", i, d.ID, err, id)
				}
				if p, err := attached.Progress(t.Context()); err != nil || p.Done != p.Total || !p.Ended {
					t.Fatalf("send %d: got progress %+v, %v, want all tasks done", i, p, err)
				}
				testutil.Ok(t, attached.Delete(t.Context()))
				if _, err := run.Wait(limited(t)); !errors.Is(err, tasks.ErrNotFound) {
					t.Fatalf("send %d, forgotten: got %v, want ErrNotFound", i, err)
				}
			}
		})
	}
}

// A chosen ID can equal a generated one, which makes it a duplicate while the other workflow exists.
func TestChosenIDThatWasGenerated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.New(t))
	first := sent(t, w, ID.S(1))
	run, err := ID.S(2).Send(t.Context(), w.client, tasks.ID(first.ID()))
	if !errors.Is(err, tasks.ErrDuplicate) || run.ID() != first.ID() {
		t.Fatalf("got %v, %v, want the first and ErrDuplicate", run, err)
	}
	wantValue(t, run, 1)
}

// The result of a handler that ignores its context, and whose workflow was revoked and forgotten, is not the result of the next
// workflow with the id.
func TestLateResultOfAForgottenWorkflow(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	old, renew := tasks.New[int, string]("old"), tasks.New[int, string]("new")
	running, release := make(chan struct{}), make(chan struct{})
	c, _ := startMux(t, rdb, func(m *tasks.Mux) {
		tasks.Handle(m, old, func(context.Context, int) (string, error) {
			close(running)
			<-release
			return "old", nil
		})
		tasks.Handle(m, renew, func(context.Context, int) (string, error) { return "new", nil })
	})
	run := started(t, c, old.S(1), tasks.ID("late"))
	<-running
	testutil.Ok(t, c.PauseQueue(t.Context(), "default"))
	testutil.Ok(t, run.Revoke(t.Context()))
	testutil.Ok(t, run.WaitAll(limited(t)))
	testutil.Ok(t, run.Delete(t.Context()))
	next := started(t, c, renew.S(1), tasks.ID("late"))
	close(release)
	testutil.Ok(t, c.ResumeQueue(t.Context(), "default"))
	wantValue(t, next, "new")
}

// Inputs that expire while the sender pauses are stored again; a sender that always pauses gets an error.
func TestSenderPausesInALargeSend(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from, to int // the calls of scripts before which stored inputs expire
		fails    bool
	}{{3, 3, false}, {2, 1000, true}} {
		t.Run(fmt.Sprint(c.from, "-", c.to), func(t *testing.T) {
			t.Parallel()
			rdb := redistest.New(t)
			length := tasks.New[string, int]("length")
			startMux(t, rdb, func(m *tasks.Mux) {
				tasks.Handle(m, length, func(_ context.Context, s string) (int, error) { return len(s), nil })
			})
			sender := redis.NewClient(rdb.(*redis.Client).Options())
			t.Cleanup(func() { _ = sender.Close() })
			calls := 0
			sender.AddHook(before(func(ctx context.Context, cmd redis.Cmder) {
				if cmd.Name() != "evalsha" || len(cmd.Args()) <= 8 { // it does not store a workflow
					return
				}
				if calls++; calls < c.from || calls > c.to {
					return
				}
				for _, key := range rdb.Keys(ctx, "muster:{0}:w:large~*").Val() {
					rdb.Del(ctx, key)
				}
			}))
			client := tasks.NewClient(sender)
			t.Cleanup(func() { _ = client.Close() })
			texts := make([]string, 4)
			for i := range texts {
				texts[i] = strings.Repeat("a", 900_000+i)
			}
			run, err := tasks.Each(texts, length).Send(t.Context(), client, tasks.ID("large"))
			if c.fails {
				if err == nil || !strings.Contains(err.Error(), "expired") {
					t.Fatalf("got %v, want an error that inputs expired", err)
				}
				return
			}
			testutil.Ok(t, err)
			if got, err := run.Wait(limited(t)); err != nil || !slices.Equal(got, []int{900_000, 900_001, 900_002, 900_003}) {
				t.Fatalf("got %v, %v, want the lengths of all texts", got, err)
			}
		})
	}
}

// before is a hook that is called before each command.
type before func(ctx context.Context, cmd redis.Cmder)

// DialHook implements redis.Hook.
func (h before) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (h before) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h(ctx, cmd)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (h before) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
