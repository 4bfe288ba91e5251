package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
)

// A wait that times out returns the reason why the workflow has not ended.
func TestWaitThatTimesOutHasTheReason(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.New(t))
	run := sent(t, w, ID.S(1, tasks.Queue("nobody")))
	if err := run.Delete(t.Context()); !errors.Is(err, tasks.ErrRunning) {
		t.Errorf("delete a running workflow: got %v, want %v", err, tasks.ErrRunning)
	}
	for name, wait := range map[string]func(context.Context) error{
		"Wait":      func(ctx context.Context) error { _, err := run.Wait(ctx); return err },
		"NodeValue": func(ctx context.Context) error { _, err := run.NodeValue(ctx, "0"); return err },
		"WaitAll":   run.WaitAll,
	} {
		testutil.Eventually(t, name+" tells what the node waits for", func() bool { // a slow Redis does not tell in time
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			err := wait(ctx)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%s: got %v, want the end of the context", name, err)
			}
			return strings.Contains(err.Error(), "node 0 (t.id) waits: no live worker takes from queue nobody")
		})
	}
}

func TestBlockingCallsDoNotPoll(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	sender := testutil.Must(tasks.Connect(t.Context(), url))(t)
	t.Cleanup(func() { _ = sender.Close() })
	run := started(t, sender, tasks.Group(ID.S(1), ID.S(2)))
	for name, call := range map[string]func(context.Context, *tasks.Client) error{
		"Wait": func(ctx context.Context, c *tasks.Client) error {
			_, err := tasks.Attach[[]int](c, run.ID()).Wait(ctx)
			return err
		},
		"WaitAll": func(ctx context.Context, c *tasks.Client) error { return c.Workflow(run.ID()).WaitAll(ctx) },
		"Watch": func(ctx context.Context, c *tasks.Client) (err error) {
			for _, err = range c.Workflow(run.ID()).Watch(ctx) {
			}
			return err
		},
		"AsCompleted": func(ctx context.Context, c *tasks.Client) (err error) {
			for _, err = range tasks.AsCompleted(ctx, tasks.Attach[[]int](c, run.ID())) {
			}
			return err
		},
		"NodeValue": func(ctx context.Context, c *tasks.Client) error {
			_, err := c.Workflow(run.ID()).NodeValue(ctx, "0")
			return err
		},
	} {
		for _, waiters := range []int{1, 10} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				rdb, traffic := redistest.NewTraffic(t, url)
				c := newClient(t, rdb)
				ctx, cancel := context.WithTimeout(t.Context(), 1200*time.Millisecond)
				defer cancel()
				var all sync.WaitGroup
				for range waiters {
					all.Go(func() {
						if err := call(ctx, c); !errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("got %v, want the end of the context", err)
						}
					})
				}
				all.Wait()
				// With the commands that open connections and read what the workflow waits for.
				if got, _ := traffic.Take(); got > int64(40*waiters) {
					t.Errorf("%d waiters sent %d commands in about a second, want at most %d", waiters, got, 40*waiters)
				}
			})
		}
	}
}

// Members that ended before AsCompleted reads them come in the order in which they ended.
func TestMembersComeInTheOrderOfTheirEnds(t *testing.T) {
	t.Parallel()
	ask := tasks.New[int, int]("order.ask", tasks.External())
	inWorlds(t, func(t *testing.T, w *world) {
		ctx := limited(t)
		run := sent(t, w, tasks.Group(ask.S(0), tasks.Chain(ID.S(1), ask), tasks.Chord(tasks.Group(ask.S(2), ask.S(3)), Total), tasks.Chain(ask.S(4), ID)))
		// The nodes in the order in which they are completed: with the first, the last member fails.
		for i, input := range []int{4, 2, 1, 0, 3} {
			var token string
			testutil.Eventually(t, "the node is open", func() bool {
				open, _, err := w.client.Inspect().OpenTokens(ctx, ask.Name(), "")
				if err != nil {
					return false
				}
				for _, o := range open {
					if o.Workflow == run.ID() && string(o.Input) == strconv.Itoa(input) {
						token, err = w.client.Workflow(o.Workflow).NewToken(ctx, o.Node)
						return err == nil
					}
				}
				return false
			})
			var err error
			if i == 0 {
				err = w.client.Fail(ctx, token, errors.New("declined"))
			} else {
				err = ask.Complete(ctx, w.client, token, input)
			}
			testutil.Ok(t, err)
			completed := redisMilli(t, w.client.Redis()) // a node ends at this time at the latest
			testutil.Eventually(t, "the clock of Redis has advanced", func() bool { return redisMilli(t, w.client.Redis()) > completed })
		}
		testutil.Ok(t, run.WaitAll(ctx))
		var order []int
		for m, err := range tasks.AsCompleted(ctx, run) {
			testutil.Ok(t, err)
			order = append(order, m.Index)
		}
		if !slices.Equal(order, []int{3, 1, 0, 2}) {
			t.Errorf("members came in the order %v, want 3 1 0 2", order)
		}
	})
}

func redisMilli(t *testing.T, rdb redis.UniversalClient) int64 {
	t.Helper()
	now := testutil.Must(rdb.Time(t.Context()).Result())(t)
	return now.UnixMilli()
}

// Do is Send and Wait; inside a handler it sends nothing, and NodeValue does not wait.
func TestDoSendsAndWaits(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.New(t))
	double := tasks.New[int, int]("background.double")
	ask := tasks.New[int, bool]("background.ask")
	mux := tasks.NewMux()
	tasks.Handle(mux, double, func(_ context.Context, n int) (int, error) { return 2 * n, nil })
	tasks.Handle(mux, ask, func(ctx context.Context, n int) (bool, error) {
		_, err := double.S(n).Do(ctx, client, tasks.ID("inside"))
		_, verr := client.Workflow(tasks.InfoFrom(ctx).Workflow).NodeValue(ctx, "0")
		return errors.Is(err, tasks.ErrWaitInTask) && errors.Is(verr, tasks.ErrWaitInTask), nil
	})
	runWorker(t, client, mux, tasks.WorkerConfig{})
	if got, err := double.S(21).Do(limited(t), client); err != nil || got != 42 {
		t.Errorf("Do: got %v, %v, want 42", got, err)
	}
	if refused, err := ask.S(1).Do(limited(t), client); err != nil || !refused {
		t.Errorf("Do in a handler: got %v, %v, want ErrWaitInTask", refused, err)
	}
	if _, err := client.Workflow("inside").Status(t.Context()); !errors.Is(err, tasks.ErrNotFound) {
		t.Errorf("workflow of Do in a handler: got %v, want ErrNotFound", err)
	}
}

// WaitAll waits for the siblings of a failure, and for the task that is run on it.
func TestWaitAllWaitsForWhatTheValueDoesWithout(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.New(t))
	step := tasks.New[bool, bool]("all.step")
	alert := tasks.New[tasks.Failure, bool]("all.alert")
	release := make(chan struct{})
	var ended atomic.Int32
	mux := tasks.NewMux()
	tasks.Handle(mux, step, func(_ context.Context, fails bool) (bool, error) {
		if fails {
			return false, errors.New("no")
		}
		<-release
		ended.Add(1)
		return true, nil
	})
	tasks.Handle(mux, alert, func(context.Context, tasks.Failure) (bool, error) {
		<-release
		ended.Add(1)
		return true, nil
	})
	runWorker(t, client, mux, tasks.WorkerConfig{})
	run := started(t, client, tasks.OnError(tasks.Each([]bool{true, false}, step), alert))
	if _, err := run.Wait(limited(t)); err == nil {
		t.Error("Wait: got nil, want the failure")
	}
	if got := ended.Load(); got != 0 {
		t.Errorf("ended when Wait has returned: got %d, want 0", got)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run.WaitAll(over); !errors.Is(err, context.Canceled) {
		t.Errorf("WaitAll with a ctx that is done: got %v, want context.Canceled", err)
	}
	close(release)
	if err := run.WaitAll(limited(t)); err != nil {
		t.Errorf("WaitAll: got %v, want nil", err)
	}
	if got := ended.Load(); got != 2 {
		t.Errorf("ended when WaitAll has returned: got %d, want 2", got)
	}
}

// Workflows that are sent one after another with one id have nothing in common but the id, for workers, senders and
// readers that know the earlier ones. The ids have the forms of people and of generated ids.
func TestReusedID(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"order-17", "d5jq0l2m3n4p5q6r7s8t9uav"} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.New(t)
			w := newWorld(t, rdb)
			reader := newClient(t, rdb) // it knows each workflow, like another process
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
				_, err := run.Wait(limited(t))
				if again := attached.Delete(t.Context()); !errors.Is(err, tasks.ErrNotFound) || !errors.Is(again, tasks.ErrNotFound) {
					t.Fatalf("send %d, forgotten: got %v from Wait, %v from Delete, want ErrNotFound", i, err, again)
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
			sender.AddHook(redistest.Before(func(ctx context.Context, cmd redis.Cmder) {
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
			client := newClient(t, sender)
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
