package tasks

import (
	"fmt"
	"maps"
	"regexp"
	"strings"
	"time"

	"muster/tasks/internal/graph"
)

// Where an option may be given, its type says; elsewhere it does not compile. One with a value that makes no
// sense is an error of Send that names it. Options given later win: those of [New], then of [Task.With], then of S
// or the combinator, then of [Signature.With], then of Send.
type (
	// TaskOption is for [New].
	TaskOption interface{ forTask(o *graph.Opts) }
	// CallOption is for one use of a task: S, [Task.With], [Chain], [Chord], [Signature.With], [Each] and [Map].
	CallOption interface {
		EachOption
		forCall(o *graph.Opts)
	}
	// GroupOption is for a group or a map as a whole: [GroupOf], [Each], [Map] and [MapFunc].
	GroupOption interface {
		EachOption
		forGroup(o *graph.Opts)
	}
	// EachOption is for [Each] and [Map]: a [GroupOption] is for the whole, a [CallOption] for every member.
	EachOption interface{ forEach(o *graph.Opts) }
	// SendOption is for Send and [Scheduler.Add].
	SendOption interface{ forSend(o *graph.Opts) }

	// Option is for a task, wherever it is named, and for Send.
	//
	// Given to Send, [Queue] and [Priority] reach the first step of a chain, both sides of a chord and every
	// member of a group; [In] delays what can run at once; [Timeout], [HardTimeout], [MaxRetry], [Backoff] and
	// [Expires] reach every task, those that plans add as well.
	Option interface {
		TaskOption
		CallOption
		SendOption
	}
	// StartOption is for one use of a task and for Send.
	StartOption interface {
		CallOption
		SendOption
	}
	// StepOption is for a task, wherever it is named.
	StepOption interface {
		TaskOption
		CallOption
	}
)

// option sets what it is for. All options are of this type; what they are returned as says where they go.
type option func(*graph.Opts)

func (f option) forTask(o *graph.Opts)  { f(o) }
func (f option) forCall(o *graph.Opts)  { f(o) }
func (f option) forEach(o *graph.Opts)  { f(o) }
func (f option) forGroup(o *graph.Opts) { f(o) }
func (f option) forSend(o *graph.Opts)  { f(o) }

// collect returns what opts set, in their order; nil ones set nothing.
func collect[T any](opts []T, apply func(T, *graph.Opts)) *graph.Opts {
	if len(opts) == 0 {
		return graph.NoOpts
	}
	o := &graph.Opts{}
	for _, opt := range opts {
		if any(opt) != nil {
			apply(opt, o)
		}
	}
	return o
}

// bad returns the option that makes a send fail.
func bad(format string, args ...any) option {
	err := fmt.Errorf("option tasks."+format, args...)
	return func(o *graph.Opts) {
		if o.Err == nil {
			o.Err = err
		}
	}
}

// longest bounds durations.
const longest = 100 * 365 * 24 * time.Hour

// lasting returns the option that set makes of a duration from least to about a hundred years.
func lasting(name string, d, least time.Duration, set func(o *graph.Opts)) option {
	if d < least || d > longest {
		return bad("%s(%s): give a duration from %s to %s", name, d, least, longest)
	}
	return set
}

// Queue routes a task to a queue. The name has up to 100 bytes, and no brace, colon, bar or white space.
// Defaults to "default".
func Queue(name string) Option {
	if name == "" || len(name) > 100 || strings.ContainsAny(name, "{}:| \t\r\n") {
		return bad("Queue(%.110q): the name of a queue has 1 to 100 bytes, and no brace, colon, bar or white space", name)
	}
	return option(func(o *graph.Opts) { o.Queue = name })
}

// Priority lets a task with n > 0 go before the others that wait in its queue. n is 0 to 255. Defaults to 0.
func Priority(n int) Option {
	if n < 0 || n > 255 {
		return bad("Priority(%d): give a number from 0 to 255", n)
	}
	return option(func(o *graph.Opts) { o.Priority = &n })
}

// Timeout is the soft time limit of one attempt: the deadline of the handler's context. Zero is no
// limit. Defaults to one hour.
func Timeout(d time.Duration) Option {
	return lasting("Timeout", d, 0, func(o *graph.Opts) { o.Timeout = &d })
}

// HardTimeout is the time after which an attempt is given up for good: the task fails with
// [tasktype.CodeHardTimeout], and its slot is freed even when the handler does not return. Zero is no limit. Defaults
// to ten seconds after [Timeout].
func HardTimeout(d time.Duration) Option {
	return lasting("HardTimeout", d, 0, func(o *graph.Opts) { o.Hard = &d })
}

// MaxRetry is how often a failed attempt is repeated. Defaults to 0: the first failure is final.
func MaxRetry(n int) Option {
	if n < 0 {
		return bad("MaxRetry(%d): give 0 or more", n)
	}
	return option(func(o *graph.Opts) { o.MaxRetry = &n })
}

// Backoff waits between attempts a random time up to base, 2 base, 4 base …, at most limit. base is at least a
// millisecond. Defaults to one second and ten minutes.
func Backoff(base, limit time.Duration) Option {
	if base < time.Millisecond || limit < base || limit > longest {
		return bad("Backoff(%s, %s): give a base of at least 1ms, and a limit from that to %s", base, limit, longest)
	}
	return option(func(o *graph.Opts) { o.Backoff = &graph.Backoff{Base: base, Cap: limit} })
}

// ConstantBackoff waits d between attempts.
func ConstantBackoff(d time.Duration) Option {
	return lasting("ConstantBackoff", d, 0, func(o *graph.Opts) { o.Backoff = &graph.Backoff{Base: d, Fixed: true} })
}

// In delays a task by d from the moment it could run: from the send, or from when what it comes after has ended.
// In a [Scheduler], the send is the time of the tick.
func In(d time.Duration) Option {
	return lasting("In", d, 0, func(o *graph.Opts) { o.In, o.At = &d, nil })
}

// Expires revokes a task, with [tasktype.CodeExpired], that no worker has begun d after it could run: after the send,
// or after what it comes after has ended, and after its own delay. In a [Scheduler], the send is the time of the
// tick. The worker that comes to the task revokes it; without a worker for its queue it stays PENDING. A task that
// has failed and would be tried again only after that time fails with its last error. One that asks for another call
// with [Again] is revoked when that comes after the time: so Expires limits how long a task polls.
func Expires(d time.Duration) Option {
	return lasting("Expires", d, time.Millisecond, func(o *graph.Opts) { o.Expires = &d })
}

// At delays a task until t, or not at all if that is past.
func At(t time.Time) StartOption {
	if t.IsZero() || t.Year() < 1970 || t.Year() > 9999 {
		return bad("At(%s): give a time of the years 1970 to 9999", t.Format(time.RFC3339))
	}
	return option(func(o *graph.Opts) { o.At, o.In = &t, nil })
}

// RetryIf says which errors are worth another attempt. Defaults to all but those of [Permanent].
func RetryIf(worth func(error) bool) TaskOption {
	return option(func(o *graph.Opts) { o.RetryIf = worth })
}

// Alias also handles work that was sent under older names of the task.
func Alias(names ...string) TaskOption {
	for _, name := range names {
		if name == "" {
			return bad(`Alias(""): a task needs a name`)
		}
	}
	return option(func(o *graph.Opts) { o.Alias = append(o.Alias, names...) })
}

// RateLimit starts a task at most n times in any span of per, over all workers; after a rest, n can start
// together. What is over the limit waits inside its workflow and holds no worker; it is let in as starts
// come free, in no particular order. A limit of more than 1000 is kept in even parts of per. The limit is that of
// all tasks of this name, so it belongs to the declaration that their senders use.
func RateLimit(n int, per time.Duration) TaskOption {
	if n < 1 {
		return bad("RateLimit(%d, %s): give 1 or more starts; pause the queue to have none", n, per)
	}
	return lasting("RateLimit", per, time.Millisecond, func(o *graph.Opts) { o.Rate = &graph.Rate{N: n, Per: per} })
}

// AtMost releases at most n members of a group or a map at once, n > 0; the others wait inside the
// workflow and hold no worker. Defaults to all.
func AtMost(n int) GroupOption {
	if n < 1 {
		return bad("AtMost(%d): give 1 or more; leave the option out for no limit", n)
	}
	return option(func(o *graph.Opts) { o.AtMost = n })
}

// FailFast revokes the other members of a group or a map when one fails.
func FailFast() GroupOption { return option(func(o *graph.Opts) { o.FailFast = true }) }

// LinkError runs eb on the failure when the task itself has failed for good, but not when it was skipped because
// something before it failed; [OnError] is for that. The result of eb changes nothing else. On a map it is for every
// member. A task that is run by OnError or LinkError has no LinkError itself.
func LinkError[O any](eb Task[Failure, O]) StepOption {
	return option(func(o *graph.Opts) { o.Links = append(o.Links, graph.Link{Task: eb.name, Opts: eb.opts}) })
}

// ID names the workflow, with up to 100 letters, digits, _ and -. Sending under an id that exists yields
// [ErrDuplicate] and the handle of the workflow that has it.
func ID(id string) SendOption {
	if !validID.MatchString(id) {
		return bad("ID(%.110q): use 1 to 100 letters, digits, _ and -", id)
	}
	return option(func(o *graph.Opts) { o.ID = id })
}

var validID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`)

// Unique lets only one workflow with this key be under way: another send within ttl, while
// the first has not ended, yields [ErrDuplicate] and the handle of the first. The key has up to 1024 bytes.
func Unique(key string, ttl time.Duration) SendOption {
	if key == "" || len(key) > 1024 {
		return bad("Unique: a key has 1 to 1024 bytes, not %d", len(key))
	}
	return lasting("Unique: ttl", ttl, time.Millisecond, func(o *graph.Opts) { o.Unique, o.UniqueTTL = key, ttl })
}

// FairnessKey names whose work this is, such as a customer. The ready tasks of a queue are taken in turns, one key
// after the other, so that the thousand workflows of one customer do not keep the only one of another waiting. It has
// up to 100 letters, digits, and _ . : @ -. Defaults to a key for each workflow. On a Redis Cluster the turns are
// those of each shard.
func FairnessKey(key string) SendOption {
	if !validFairnessKey.MatchString(key) {
		return bad("FairnessKey(%.110q): use 1 to 100 letters, digits, and _ . : @ -", key)
	}
	return option(func(o *graph.Opts) { o.FairnessKey = key })
}

var validFairnessKey = regexp.MustCompile(`^[A-Za-z0-9_.:@-]{1,100}$`)

// Headers gives every task of the workflow values to find in its [tasktype.Info], such as the trace that it belongs
// to. All headers together have at most 8 KiB.
func Headers(h map[string]string) SendOption {
	h = maps.Clone(h)
	return option(func(o *graph.Opts) {
		if o.Headers == nil {
			o.Headers = map[string]string{}
		}
		maps.Copy(o.Headers, h)
	})
}

// Retention is how long results and states stay after the workflow has ended. Defaults to 24 hours.
func Retention(d time.Duration) SendOption {
	return lasting("Retention", d, 0, func(o *graph.Opts) { o.Retention = &d })
}

// ProgressKeys publishes the progress of the workflow as Redis keys {prefix}:{id}:… :
// total_chunks, completed_chunks, status, started_at, completed_at and result_count. Chunks are the
// members of the workflow's maps. Handlers add more with [PublishKey].
func ProgressKeys(prefix string) SendOption {
	if prefix == "" || len(prefix) > 200 || strings.ContainsAny(prefix, "{}") {
		return bad("ProgressKeys(%.210q): a prefix has 1 to 200 bytes and no brace", prefix)
	}
	return option(func(o *graph.Opts) { o.Progress = prefix })
}
