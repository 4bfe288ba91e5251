package tasks

import (
	"time"

	"muster/tasks/internal/graph"
)

// Option changes how a task, a group or a whole send runs. Options given later win: those of [New],
// then of S or the combinator, then of With, then of Send.
//
// Given to Send, [Queue] and [Priority] reach the first step of a chain, both sides of a chord and
// every member of a group; [In] and [At] delay what can run at once; time limits, retries and
// [Expires] reach every task.
type Option func(*graph.Opts)

// Options makes one option of several.
func Options(opts ...Option) Option {
	return func(o *graph.Opts) {
		for _, opt := range opts {
			if opt != nil {
				opt(o)
			}
		}
	}
}

// Queue routes a task to a queue. Defaults to "default".
func Queue(name string) Option { return func(o *graph.Opts) { o.Queue = name } }

// Priority lets a task with n > 0 go before the others that wait in its queue. Defaults to 0.
func Priority(n int) Option { return func(o *graph.Opts) { o.Priority = &n } }

// Timeout is the soft time limit of one attempt: the deadline of the handler's context. Zero is no
// limit. Defaults to one hour.
func Timeout(d time.Duration) Option { return func(o *graph.Opts) { o.Timeout = &d } }

// HardTimeout is the time after which an attempt is given up for good: the task fails with
// [CodeHardTimeout], and its slot is freed even when the handler does not return. Defaults to
// ten seconds after [Timeout].
func HardTimeout(d time.Duration) Option { return func(o *graph.Opts) { o.Hard = &d } }

// MaxRetry is how often a failed attempt is repeated. Defaults to 0: the first failure is final.
func MaxRetry(n int) Option { return func(o *graph.Opts) { o.MaxRetry = &n } }

// Backoff waits between attempts a random time up to base, 2 base, 4 base …, at most limit.
// Defaults to one second and ten minutes.
func Backoff(base, limit time.Duration) Option {
	return func(o *graph.Opts) { o.Backoff = &graph.Backoff{Base: base, Cap: limit} }
}

// ConstantBackoff waits d between attempts.
func ConstantBackoff(d time.Duration) Option {
	return func(o *graph.Opts) { o.Backoff = &graph.Backoff{Base: d, Fixed: true} }
}

// RetryIf, at a declaration, says which errors are worth another attempt. Defaults to all but those
// of [Permanent].
func RetryIf(worth func(error) bool) Option { return func(o *graph.Opts) { o.RetryIf = worth } }

// Alias, at a declaration, also handles work sent under an older name.
func Alias(names ...string) Option {
	return func(o *graph.Opts) { o.Alias = append(o.Alias, names...) }
}

// RateLimit starts a task at most n times in any span of per, over all workers; after a rest, n can start
// together. What is over the limit waits inside its workflow and holds no worker; it is let in as starts
// come free, in no particular order. A limit of more than 1000 is kept in even parts of per.
func RateLimit(n int, per time.Duration) Option {
	return func(o *graph.Opts) { o.Rate = &graph.Rate{N: n, Per: per} }
}

// In delays a task by d from the moment it could run.
func In(d time.Duration) Option { return func(o *graph.Opts) { o.In, o.At = &d, nil } }

// At delays a task until t.
func At(t time.Time) Option { return func(o *graph.Opts) { o.At, o.In = &t, nil } }

// Expires revokes a task that has not begun d from now.
func Expires(d time.Duration) Option {
	return func(o *graph.Opts) { t := time.Now().Add(d); o.Expires = &t }
}

// AtMost, on a group or a map, releases at most n members at once; the others wait inside the
// workflow and hold no worker. Defaults to all.
func AtMost(n int) Option { return func(o *graph.Opts) { o.AtMost = n } }

// FailFast, on a group or a map, revokes the other members when one fails.
func FailFast() Option { return func(o *graph.Opts) { o.FailFast = true } }

// ID, on Send, names the workflow. Sending under an id that exists yields [ErrDuplicate] and the
// handle of the workflow that has it.
func ID(id string) Option { return func(o *graph.Opts) { o.ID = id } }

// Unique, on Send, lets only one workflow with this key be under way: another send within ttl, while
// the first has not ended, yields [ErrDuplicate] and the handle of the first.
func Unique(key string, ttl time.Duration) Option {
	return func(o *graph.Opts) { o.Unique, o.UniqueTTL = key, ttl }
}

// Header, on Send, gives every task of the workflow a value to find in [Info].Headers, such as the
// trace that it belongs to. All headers together have at most 8 KiB.
func Header(key, value string) Option {
	return func(o *graph.Opts) {
		if o.Headers == nil {
			o.Headers = map[string]string{}
		}
		o.Headers[key] = value
	}
}

// Retention, on Send, is how long results and states stay after the workflow has ended. Defaults to
// 24 hours.
func Retention(d time.Duration) Option { return func(o *graph.Opts) { o.Retention = &d } }

// ProgressKeys, on Send, publishes the progress of the workflow as Redis keys {prefix}:{id}:… :
// total_chunks, completed_chunks, status, started_at, completed_at and result_count. Chunks are the
// members of the workflow's maps. Handlers add more with [PublishKey].
func ProgressKeys(prefix string) Option { return func(o *graph.Opts) { o.Progress = prefix } }
