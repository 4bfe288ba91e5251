package tasks_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
)

// countWrites is a redis.Hook that counts the writes to all connections of a client, of subscriptions too: each is a
// command or a pipeline.
type countWrites struct{ n atomic.Int64 }

type countedConn struct {
	net.Conn
	n *atomic.Int64
}

// Write implements net.Conn.
func (c countedConn) Write(b []byte) (int, error) {
	c.n.Add(1)
	return c.Conn.Write(b)
}

// DialHook implements redis.Hook.
func (c *countWrites) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return countedConn{conn, &c.n}, nil
	}
}

// ProcessHook implements redis.Hook.
func (c *countWrites) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (c *countWrites) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestBlockingCallsDoNotPoll(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	sender, err := tasks.Connect(t.Context(), url)
	testutil.Ok(t, err)
	t.Cleanup(func() { _ = sender.Close() })
	run := started(t, sender, tasks.Group(ID.S(1), ID.S(2)))
	for name, call := range map[string]func(context.Context, *tasks.Client) error{
		"Wait": func(ctx context.Context, c *tasks.Client) error {
			_, err := tasks.Attach[[]int](c, run.ID()).Wait(ctx)
			return err
		},
		"WaitAll": func(ctx context.Context, c *tasks.Client) error { return tasks.Attach[[]int](c, run.ID()).WaitAll(ctx) },
		"Watch": func(ctx context.Context, c *tasks.Client) (err error) {
			for _, err = range tasks.Attach[[]int](c, run.ID()).Watch(ctx) {
			}
			return err
		},
		"AsCompleted": func(ctx context.Context, c *tasks.Client) (err error) {
			for _, err = range tasks.AsCompleted(ctx, tasks.Attach[[]int](c, run.ID())) {
			}
			return err
		},
		"NodeValue": func(ctx context.Context, c *tasks.Client) error {
			_, err := tasks.NodeValue[int](ctx, c, run.ID(), "0")
			return err
		},
	} {
		for _, waiters := range []int{1, 10} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				opts, err := redis.ParseURL(url)
				testutil.Ok(t, err)
				rdb := redis.NewClient(opts)
				t.Cleanup(func() { _ = rdb.Close() })
				count := &countWrites{}
				rdb.AddHook(count)
				c := tasks.NewClient(rdb)
				t.Cleanup(func() { _ = c.Close() })
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
				if got, want := count.n.Load(), int64(40*waiters); got > want {
					t.Errorf("%d waiters sent %d commands in about a second, want at most %d", waiters, got, want)
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
				open, _, err := w.client.OpenTokens(ctx, ask.Name(), "")
				if err != nil {
					return false
				}
				for _, o := range open {
					if o.Workflow == run.ID() && string(o.Input) == strconv.Itoa(input) {
						token, err = w.client.NewToken(ctx, o.Workflow, o.Node)
						return err == nil
					}
				}
				return false
			})
			var err error
			if i == 0 {
				err = w.client.Fail(ctx, token, errors.New("declined"))
			} else {
				err = tasks.Complete(ctx, w.client, ask, token, input)
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
	now, err := rdb.Time(t.Context()).Result()
	testutil.Ok(t, err)
	return now.UnixMilli()
}
