package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// cannedQueues returns the next error of a list for each call of asynq's dequeue script, and then redis.Nil.
type cannedQueues struct {
	redis.UniversalClient
	errs []error
}

func (c *cannedQueues) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(redis.Nil)
	if len(c.errs) > 0 {
		cmd.SetErr(c.errs[0])
		c.errs = c.errs[1:]
	}
	return cmd
}

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

// The server sleeps only when every queue was found empty since it slept last, in whatever order asynq asks them and
// whatever went wrong before.
func TestServerSleepsOnlyWhenEveryQueueIsEmpty(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		errs []error
		asks string // queues in the order in which asynq asks them
		want string // the errors after which the server sleeps; others are "-"
	}{
		"all empty":                 {nil, "abcbca", "--c--a"},
		"the same twice":            {nil, "bcbca", "----a"},
		"the script was not loaded": {[]error{redisError("NOSCRIPT No matching script")}, "abcbac", "----a-"},
		"one has a task":            {[]error{redis.Nil, nil}, "abcb", "---b"},
		"one has a task later":      {[]error{redis.Nil, redis.Nil, redis.Nil, nil}, "abcabca", "--c---a"},
		"a call failed":             {[]error{redis.Nil, errors.New("connection reset")}, "abacb", "----b"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &poller{UniversalClient: &cannedQueues{errs: c.errs}, full: func(string) bool { return false }, queues: 3, every: pollEvery, empty: map[string]bool{}}
				got := ""
				for _, q := range c.asks {
					began := time.Now()
					p.EvalSha(t.Context(), "", []string{"asynq:{" + string(q) + "}:pending", "", "", "asynq:{" + string(q) + "}:lease"})
					if time.Since(began) == pollEvery {
						got += string(q)
					} else {
						got += "-"
					}
				}
				if got != c.want {
					t.Errorf("asked %s: it slept after %s, want %s", c.asks, got, c.want)
				}
			})
		})
	}
}
