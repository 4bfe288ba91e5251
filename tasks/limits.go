package tasks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"time"

	"muster/tasks/internal/engine"
	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// Limit limits how many tasks run at once, or start in a period, over all workers: for each key, or altogether. Declare it once with
// [Concurrency] or [Rate], and use it with [Limited] in any number of tasks, which then share it.
//
// The name of a limit, of the characters of names of tasks, identifies it in Redis: all programs that use it must declare the same limit,
// until it is changed by [Client.SetLimit]. If the name or a number is invalid, sends of the tasks that use it fail.
type Limit struct {
	name string
	n    int
	per  time.Duration // 0 for a concurrency
	err  error
}

// mostLimit bounds the number of a limit.
const mostLimit = 1_000_000

// Concurrency declares a limit that allows n tasks to run at once, from 0 to 1,000,000; with 0 none.
func Concurrency(name string, n int) Limit {
	return Limit{name: name, n: n, err: errors.Join(checkLimitName(name), checkLimit(n))}
}

// Rate declares a limit that allows n starts in any period of length per, from 0 to 1,000,000 and from a millisecond to a year; with 0 none. After a
// pause, n can start together. Repeated attempts count. A rate of more than 1000 is limited in equal parts of per.
func Rate(name string, n int, per time.Duration) Limit {
	l := Concurrency(name, n)
	if l.per = per; per < time.Millisecond || per > 365*24*time.Hour {
		l.err = errors.Join(l.err, fmt.Errorf("period %s: give 1ms to a year", per))
	}
	return l
}

func checkLimit(n int) error {
	if n < 0 || n > mostLimit {
		return fmt.Errorf("number %d: give 0 to %d", n, mostLimit)
	}
	return nil
}

func checkLimitName(name string) error {
	if name == "" || graph.CheckTask(name) != nil {
		return fmt.Errorf("name %.40q: give 1 to 100 bytes of UTF-8 without control characters", name)
	}
	return nil
}

// Name returns the name of the limit.
func (l Limit) Name() string { return l.name }

// Limited puts the tasks under a limit, by the key that the function returns; with a nil function all have the same key, "". Only workers
// call it, before each attempt. If it returns "", the attempt has no limit; if it panics, the attempt fails. In must be the input type of the
// task. A task can have several limits; they are checked in the order in which they are given.
//
// A task over the limit waits in its workflow: it holds no worker, is not polled, and uses up no attempt. The worker that ends
// an attempt lets the task run that has waited the longest. If that worker dies at this moment, another one does so within ten
// seconds, also on a Redis Cluster, where the limit and the task can be in different slots. The places of a dead worker are free
// after ten seconds. A worker that was suspended for longer, or that hit its [HardTimeout], may still run its handlers then.
//
// A changed rule takes effect with the next attempt of a worker that has it. A task that waits expires, as by [Expires], only when its
// turn has come.
func Limited[In any](l Limit, key func(In) string) TaskOption {
	if l.err != nil || l.name == "" {
		return bad("Limited: limit %q: %w", l.name, cmp.Or(l.err, errors.New("declare it with Concurrency or Rate")))
	}
	limit := &graph.Limit{Name: l.name, N: l.n, Per: l.per, In: reflect.TypeFor[In]()}
	if key != nil {
		limit.Key = func(input []byte) (string, error) {
			var in In
			if err := json.Unmarshal(input, &in); err != nil {
				return "", err
			}
			return key(in), nil
		}
	}
	return option(func(o *graph.Opts) { o.Limits = append(o.Limits, limit) })
}

// checkRules returns an error if handlers are under limits of the same name with different rules.
func checkRules(handlers map[string]*engine.Handler) error {
	rules := map[string]*graph.Limit{}
	for task, h := range handlers {
		for _, l := range h.Opts.Limits {
			have := rules[l.Name]
			if have != nil && (have.N != l.N || have.Per != l.Per) {
				return fmt.Errorf("task %s: limit %s is declared with two rules, %s and %s: declare it once, in a variable", task, l.Name, rule(have), rule(l))
			}
			rules[l.Name] = l
		}
	}
	return nil
}

func rule(l *graph.Limit) string {
	if l.Per > 0 {
		return fmt.Sprintf("%d per %s", l.N, l.Per)
	}
	return fmt.Sprintf("%d at once", l.N)
}

// errLimit means that a change of a limit is out of range.
var errLimit = store.Kind(ErrInvalid, "invalid limit")

// SetLimit changes the number of a limit for one key, or for [tasktype.AllKeys], from the next moment until [Client.ResetLimit]; that of a key goes
// before that of all keys. With 0 nothing starts. Tasks that wait and are allowed now start within a second; tasks that run are not
// stopped. The limit does not have to exist. The keys are those of the functions of [Limited]; that of a limit without one is "".
func (c *Client) SetLimit(ctx context.Context, name, key string, n int) error {
	if err := checkLimit(n); err != nil {
		return fmt.Errorf("%w %s: %w", errLimit, name, err)
	}
	return c.changeLimit(ctx, name, key, store.LimitN, strconv.Itoa(n))
}

// ResetLimit ends the change of a limit by [Client.SetLimit] for the same key.
func (c *Client) ResetLimit(ctx context.Context, name, key string) error {
	return c.changeLimit(ctx, name, key, store.LimitN, "")
}

// HoldLimit lets no task under a limit start until a time, for one key or [tasktype.AllKeys]: an API has replied 429, for example. A time that is
// not in the future ends it. Tasks that run are not stopped. The time is at most a year ahead.
func (c *Client) HoldLimit(ctx context.Context, name, key string, until time.Time) error {
	value := ""
	switch left := time.Until(until); {
	case left > 366*24*time.Hour:
		return fmt.Errorf("%w %s: hold until %s: give at most a year", errLimit, name, until.Format(time.RFC3339))
	case left > 0:
		value = strconv.FormatInt(until.UnixMilli(), 10)
	}
	return c.changeLimit(ctx, name, key, store.LimitHold, value)
}

func (c *Client) changeLimit(ctx context.Context, name, key, what, value string) error {
	if err := checkLimitName(name); err != nil {
		return fmt.Errorf("%w: %w", errLimit, err)
	}
	one := &key
	if key == tasktype.AllKeys {
		one = nil
	}
	if err := c.eng.Fleet.ChangeLimit(ctx, name, one, what, value); err != nil {
		return fmt.Errorf("change limit %s: %w", name, err)
	}
	return nil
}

// mostLimits bounds the keys that Limits returns.
const mostLimits = 10_000

// Limits returns the state of a limit for the keys that tasks wait for or that were changed, sorted by limit and key; of all limits if the
// name is empty. At most 10,000 are returned.
func (i *Inspector) Limits(ctx context.Context, name string) ([]tasktype.Limit, error) {
	return i.eng.Store().Limits.List(ctx, name, mostLimits)
}
