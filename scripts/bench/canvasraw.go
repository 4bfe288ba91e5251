package main

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// rawServers runs handlers on asynq's own servers, which poll every 10 ms.
func rawServers(l *lab, servers, slots int, h func(cl *asynq.Client) asynq.Handler) (*asynq.Client, func() error, error) {
	opt := asynq.RedisClientOpt{Addr: l.addr, PoolSize: slots + 20}
	cl := asynq.NewClient(opt)
	var stops []func()
	stop := func() error {
		for _, stop := range stops {
			stop()
		}
		return cl.Close()
	}
	for range servers {
		srv := asynq.NewServer(opt, asynq.Config{Concurrency: slots, TaskCheckInterval: 10 * time.Millisecond, LogLevel: asynq.ErrorLevel})
		if err := srv.Start(h(cl)); err != nil {
			return nil, nil, errors.Join(err, stop())
		}
		stops = append(stops, srv.Shutdown)
	}
	return cl, stop, nil
}

func rawTask(i int, opts ...asynq.Option) *asynq.Task {
	return asynq.NewTask("raw", []byte(strconv.Itoa(i)), opts...)
}

// rawRun is how long n tasks take on asynq, in ms: from the first send until none is left.
func rawRun(n, servers, slots int, do func(context.Context, *redis.Client, *asynq.Task) error, opts ...asynq.Option) measureFunc {
	return func(ctx context.Context, l *lab) (float64, error) {
		rdb := redis.NewClient(&redis.Options{Addr: l.addr, PoolSize: slots + 20})
		defer rdb.Close()
		cl, stop, err := rawServers(l, servers, slots, func(*asynq.Client) asynq.Handler {
			return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error { return do(ctx, rdb, t) })
		})
		if err != nil {
			return 0, err
		}
		began := time.Now()
		err = bySenders(n, func(i int) error {
			_, err := cl.EnqueueContext(ctx, rawTask(i, opts...))
			return err
		})
		err = errors.Join(err, awaitIdle(ctx, rdb))
		took := time.Since(began)
		return ms(took), errors.Join(err, stop())
	}
}

// awaitIdle waits until asynq has no task left.
func awaitIdle(ctx context.Context, rdb *redis.Client) error {
	for {
		var left int64
		for _, list := range []string{"asynq:{default}:pending", "asynq:{default}:active"} {
			n, err := rdb.LLen(ctx, list).Result()
			if err != nil {
				return err
			}
			left += n
		}
		if left == 0 {
			return nil
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// rawGroup is a group written by hand: asynq keeps the results, and a counter counts them. Unlike ours it does not read
// the results.
func rawGroup(n, servers, slots int) measureFunc {
	return rate(n, rawRun(n, servers, slots, func(ctx context.Context, rdb *redis.Client, t *asynq.Task) error {
		if _, err := t.ResultWriter().Write(t.Payload()); err != nil {
			return err
		}
		return rdb.Incr(ctx, "group:count").Err()
	}, asynq.Retention(time.Hour)))
}

// rawSingles keeps no results, as is asynq's default.
func rawSingles(n int) measureFunc {
	return rate(n, rawRun(n, 1, 8, func(context.Context, *redis.Client, *asynq.Task) error { return nil }))
}

func rawSend(n int) measureFunc {
	return func(_ context.Context, l *lab) (float64, error) {
		cl := asynq.NewClient(asynq.RedisClientOpt{Addr: l.addr})
		began := time.Now()
		for i := range n {
			if _, err := cl.Enqueue(rawTask(i)); err != nil {
				return 0, errors.Join(err, cl.Close())
			}
		}
		return float64(n) / time.Since(began).Seconds(), cl.Close()
	}
}

func rawRedisPerSingle(ctx context.Context, l *lab) (float64, error) {
	cl, stop, err := rawServers(l, 1, 8, func(*asynq.Client) asynq.Handler {
		return asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			time.Sleep(nap)
			return nil
		})
	})
	if err != nil {
		return 0, err
	}
	v, err := l.redisPaced(ctx, func(i int) error {
		_, err := cl.Enqueue(rawTask(i))
		return err
	})
	return v, errors.Join(err, stop())
}

type rawStep struct{ Left, Chain int }

// rawSteps is a handler that enqueues the next step, as users of asynq write chains.
func rawSteps(ended func()) func(cl *asynq.Client) asynq.Handler {
	return func(cl *asynq.Client) asynq.Handler {
		return asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
			var s rawStep
			if err := json.Unmarshal(t.Payload(), &s); err != nil {
				return err
			}
			if s.Left--; s.Left == 0 {
				ended()
				return nil
			}
			raw, err := json.Marshal(s)
			if err != nil {
				return err
			}
			_, err = cl.Enqueue(asynq.NewTask("raw", raw))
			return err
		})
	}
}

func rawChains(n, steps int) measureFunc {
	return func(ctx context.Context, l *lab) (float64, error) {
		var left atomic.Int64
		left.Store(int64(n) + 1)
		done, warm := make(chan struct{}), make(chan struct{})
		cl, stop, err := rawServers(l, 1, 8, rawSteps(func() {
			switch left.Add(-1) {
			case int64(n):
				close(warm)
			case 0:
				close(done)
			}
		}))
		if err != nil {
			return 0, err
		}
		if _, err := cl.Enqueue(asynq.NewTask("raw", []byte(`{"Left":1}`))); err != nil {
			return 0, errors.Join(err, stop())
		}
		if err := await(ctx, warm); err != nil {
			return 0, errors.Join(err, stop())
		}
		began := time.Now()
		for i := range n {
			raw, err := json.Marshal(rawStep{steps, i})
			if err == nil {
				_, err = cl.Enqueue(asynq.NewTask("raw", raw))
			}
			if err != nil {
				return 0, errors.Join(err, stop())
			}
		}
		err = await(ctx, done)
		return ms(time.Since(began)), errors.Join(err, stop())
	}
}

// await waits until done is closed or ctx ends.
func await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// rawChord is a chord written by hand: each member stores its result and increments a counter, and the last one
// enqueues the body.
func rawChord(n int) measureFunc {
	return func(ctx context.Context, l *lab) (float64, error) {
		done := make(chan error, 1)
		rdb := l.rdb
		cl, stop, err := rawServers(l, 1, 8, func(cl *asynq.Client) asynq.Handler {
			return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
				if t.Type() == "body" {
					_, err := rdb.LRange(ctx, "chord:results", 0, -1).Result()
					done <- err
					return err
				}
				pipe := rdb.TxPipeline()
				pipe.RPush(ctx, "chord:results", t.Payload())
				count := pipe.Incr(ctx, "chord:count")
				if _, err := pipe.Exec(ctx); err != nil {
					return err
				}
				if count.Val() == int64(n) {
					_, err := cl.Enqueue(asynq.NewTask("body", nil))
					return err
				}
				return nil
			})
		})
		if err != nil {
			return 0, err
		}
		began := time.Now()
		for i := range n {
			if _, err := cl.Enqueue(rawTask(i)); err != nil {
				return 0, errors.Join(err, stop())
			}
		}
		select {
		case err = <-done:
		case <-ctx.Done():
			err = ctx.Err()
		}
		return ms(time.Since(began)), errors.Join(err, stop())
	}
}
