package tasks

import (
	"fmt"
	"maps"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"muster/tasks/internal/engine"
	"muster/tasks/internal/graph"
)

// The type of an option decides where it may be given; anywhere else it does not compile. Send returns an error that
// names an option whose value is out of range. An option given later overrides an earlier one: the order is [New],
// [Task.With], S or the combinator, [Signature.With], Send.
type (
	// TaskOption is for [New].
	TaskOption interface{ forTask(o *graph.Opts) }
	// CallOption is for one use of a task: S, [Task.With], [Chain] and [Chord].
	CallOption interface {
		GroupOption
		forCall(o *graph.Opts)
	}
	// GroupOption is for [Each], [Map] and [Signature.With]: [AtMost] and [FailFast] are for the group, the map or the join as a
	// whole, a CallOption is for every member.
	GroupOption interface{ forGroup(o *graph.Opts) }
	// SendOption is for Send and for a [Schedule].
	SendOption interface{ forSend(o *graph.Opts) }
	// ClientOption is for [Connect] and [NewClient].
	ClientOption interface{ forClient(o *graph.Opts) }

	// Option is for [New], for one use of a task, and for Send.
	//
	// Given to Send, [Queue] and [Priority] apply to the first step of a chain, both sides of a chord and every
	// member of a group; [In] and [At] delay the tasks that could run at once; [Timeout], [HardTimeout], [MaxRetry],
	// [Backoff] and [Expires] apply to every task, including tasks that plans add.
	Option interface {
		TaskOption
		CallOption
		SendOption
	}
)

// option sets fields of Opts. All options have this type; the interface that a function returns limits their use.
type option func(*graph.Opts)

func (f option) forTask(o *graph.Opts)   { f(o) }
func (f option) forCall(o *graph.Opts)   { f(o) }
func (f option) forGroup(o *graph.Opts)  { f(o) }
func (f option) forSend(o *graph.Opts)   { f(o) }
func (f option) forClient(o *graph.Opts) { f(o) }

// collect applies opts in their order; nil ones are skipped.
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

// bad returns an option that makes a send fail with this error.
func bad(format string, args ...any) option {
	err := fmt.Errorf("option tasks."+format, args...)
	return func(o *graph.Opts) {
		if o.Err == nil {
			o.Err = err
		}
	}
}

// longest is the longest duration of an option.
const longest = 100 * 365 * 24 * time.Hour

// lasting returns the option set if d is from least to longest, and a bad one otherwise.
func lasting(name string, d, least time.Duration, set func(o *graph.Opts)) option {
	if d < least || d > longest {
		return bad("%s(%s): give a duration from %s to %s", name, d, least, longest)
	}
	return set
}

// Namespace separates programs that share a database of Redis: a client and its workers see only workflows, queues, workers and
// schedules of their namespace. All keys and channels begin with name and a colon, except for those of [ProgressKeys]. A queue is
// named "<namespace>:<queue>" in asynq and its tools. The name has up to 64 ASCII letters, digits, dots, hyphens and underscores, and
// is not asynq. Defaults to "muster", whose queues have the same names in asynq. Packages that store more than workflows with the client
// have names of their own.
func Namespace(name string) ClientOption {
	if len(name) > 64 || name == "asynq" || strings.Trim(name, namespaceChars) != "" {
		return bad("Namespace(%.70q): a namespace has 1 to 64 ASCII letters, digits, dots, hyphens and underscores, and is not asynq", name)
	}
	return option(func(o *graph.Opts) { o.Namespace = name })
}

// SendDefaults applies opts to each send of the client that does not override them, such as [Retention] or [Labels].
func SendDefaults(opts ...SendOption) ClientOption {
	return option(func(o *graph.Opts) {
		for _, opt := range opts {
			opt.forSend(o)
		}
	})
}

const namespaceChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"

// Queue is the queue of a task. The name has up to 100 bytes, and no brace, colon, bar or white space.
// Defaults to "default".
func Queue(name string) Option {
	if !validQueue(name) {
		return bad("Queue(%.110q): the name of a queue has 1 to 100 bytes, and no brace, colon, bar or white space", name)
	}
	return option(func(o *graph.Opts) { o.Queue = name })
}

func validQueue(name string) bool {
	return name != "" && len(name) <= 100 && !strings.ContainsAny(name, "{}:| \t\r\n")
}

// Priority has two levels: a task with n > 0 runs before the tasks with n = 0 of its queue, whatever n is. n is 0 to 255.
// After several batches of high priority in a row a worker takes one of normal priority. Defaults to 0.
func Priority(n int) Option {
	if n < 0 || n > 255 {
		return bad("Priority(%d): give a number from 0 to 255", n)
	}
	return option(func(o *graph.Opts) { o.Priority = &n })
}

// Timeout is the soft time limit of an attempt: the deadline of the handler's context, in milliseconds, rounded up. Zero is
// no limit. Defaults to one hour.
func Timeout(d time.Duration) Option {
	return lasting("Timeout", d, 0, func(o *graph.Opts) { o.Timeout = &d })
}

// HardTimeout is the hard time limit of an attempt: after it the task fails with [tasktype.CodeHardTimeout], without a
// retry, and its slot is free even if the handler has not returned. Zero is no limit. Defaults to ten seconds more than
// [Timeout]. If a task has both, HardTimeout must not be below Timeout.
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

// Backoff is the delay between attempts: a random time up to base, then 2 base, 4 base …, at most limit. base is at
// least a millisecond. Defaults to one second and ten minutes.
func Backoff(base, limit time.Duration) Option {
	if base < time.Millisecond || limit < base || limit > longest {
		return bad("Backoff(%s, %s): give a base of at least 1ms, and a limit from that to %s", base, limit, longest)
	}
	return option(func(o *graph.Opts) { o.Backoff = &graph.Backoff{Base: base, Cap: limit} })
}

// ConstantBackoff is a [Backoff] that is always d.
func ConstantBackoff(d time.Duration) Option {
	return lasting("ConstantBackoff", d, 0, func(o *graph.Opts) { o.Backoff = &graph.Backoff{Base: d, Fixed: true} })
}

// In delays a task by d, counted from when it could run: from the send, or from the end of the tasks that it comes
// after. In a [Schedule] the send is at the time of the tick.
//
// In and [At] in one list of options are an error of Send; of two lists the later one applies.
func In(d time.Duration) Option {
	return lasting("In", d, 0, func(o *graph.Opts) { start(o, &d, nil) })
}

// start sets the option In or At.
func start(o *graph.Opts, in *time.Duration, at *time.Time) {
	if in != nil && o.At != nil || at != nil && o.In != nil {
		bad("In and tasks.At on one task: give one of them")(o)
	}
	o.In, o.At = in, at
}

// Expires revokes a task, with [tasktype.CodeExpired], that has not started d after it could run: after the send or the
// end of the tasks that it comes after, and after its own delay. In a [Schedule] the send is at the time of the tick.
// The worker that takes the task revokes it; while its queue has no worker it stays PENDING. A task that failed and
// whose next attempt would be after that time fails with its last error. A task that asks with [Again] for a call after
// that time is revoked: so Expires limits how long a task polls.
func Expires(d time.Duration) Option {
	return lasting("Expires", d, time.Millisecond, func(o *graph.Opts) { o.Expires = &d })
}

// At delays a task until t. A time in the past delays nothing.
func At(t time.Time) Option {
	if t.IsZero() || t.Year() < 1970 || t.Year() > 9999 {
		return bad("At(%s): give a time of the years 1970 to 9999", t.Format(time.RFC3339))
	}
	return option(func(o *graph.Opts) { start(o, nil, &t) })
}

// Alias binds the handler of the task to these names too, so that it handles work that was sent under them.
func Alias(names ...string) TaskOption {
	for _, name := range names {
		if err := graph.CheckTask(name); err != nil {
			return bad("Alias: %w", err)
		}
	}
	return option(func(o *graph.Opts) { o.Alias = append(o.Alias, names...) })
}

// AtMost runs at most n members of a group or a map at once, n > 0; the others wait in the
// workflow and hold no worker. Defaults to all.
func AtMost(n int) GroupOption {
	if n < 1 {
		return bad("AtMost(%d): give 1 or more; leave the option out for no limit", n)
	}
	return option(func(o *graph.Opts) { o.AtMost = n })
}

// FailFast revokes the other members of a group or a map when one fails.
func FailFast() GroupOption { return option(func(o *graph.Opts) { o.FailFast = true }) }

// ID is the id of the workflow: up to 100 letters, digits, _ and -. If a workflow has the id already, Send returns
// [ErrDuplicate] and the handle of that workflow. Defaults to a random id.
func ID(id string) SendOption {
	if !validID.MatchString(id) {
		return bad("ID(%.110q): use 1 to 100 letters, digits, _ and -", id)
	}
	return option(func(o *graph.Opts) { o.ID = id })
}

var validID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`)

// Unique allows one running workflow with this key: another send within ttl, while the first workflow has not ended,
// returns [ErrDuplicate] and the handle of the first, unless [Overlap] sets another policy. The key is free when the workflow
// ends, and after ttl in any case: choose a ttl longer than the longest run. The key has up to 1024 bytes.
func Unique(key string, ttl time.Duration) SendOption {
	return unique("Unique", "ttl", key, ttl, false)
}

// Once lets work with this key succeed once in a window, which begins with the send: another send returns [ErrDuplicate] and the handle of
// the first workflow, while this one is running and after its success. After a failure, a cancellation, a revocation or [Workflow.Delete]
// the key is free. A success is kept for at least the window, whatever [Retention] is. The key has up to 1024 bytes. Use another one for
// [Unique], which the option excludes, as it does [Overlap]. An [ID] beside it is taken while its workflow is kept, also after a failure.
func Once(key string, window time.Duration) SendOption {
	return unique("Once", "window", key, window, true)
}

// unique sets the option Unique or Once.
func unique(name, span, key string, ttl time.Duration, once bool) SendOption {
	if key == "" || len(key) > 1024 {
		return bad("%s: a key has 1 to 1024 bytes, not %d", name, len(key))
	}
	return lasting(name+": "+span, ttl, time.Millisecond, func(o *graph.Opts) {
		if o.Unique != "" && o.Once != once {
			bad("Once: the send has tasks.Unique too; give one of them")(o)
		}
		o.Unique, o.UniqueTTL, o.Once = key, ttl, once
	})
}

// FairnessKey names the owner of the work, such as a customer. Workers take the ready tasks of a queue from each key in
// turn, so that a thousand workflows of one customer do not delay the only one of another. The key has up to 100 letters,
// digits, and _ . : @ -. Defaults to a key for each workflow. On a Redis Cluster each shard has separate turns.
func FairnessKey(key string) SendOption {
	if !validFairnessKey.MatchString(key) {
		return bad("FairnessKey(%.110q): use 1 to 100 letters, digits, and _ . : @ -", key)
	}
	return option(func(o *graph.Opts) { o.FairnessKey = key })
}

var validFairnessKey = regexp.MustCompile(`^[A-Za-z0-9_.:@-]{1,100}$`)

// Headers adds values to the [tasktype.Info] of every task of the workflow, such as the trace that it belongs to. All
// headers together have at most 8 KiB.
func Headers(h map[string]string) SendOption {
	h = maps.Clone(h)
	return option(func(o *graph.Opts) {
		if o.Headers == nil {
			o.Headers = map[string]string{}
		}
		maps.Copy(o.Headers, h)
	})
}

// Deadline cancels the workflow at a time unless it has ended, as [Workflow.Cancel] does, even while it is paused. The failures of
// its tasks have the code "deadline" and match [ErrDeadline] and [ErrCancelled], as the causes of the contexts of handlers. A
// worker must be running then; otherwise the workflow is cancelled when one starts. Send returns [ErrInvalid] if the time has
// passed by the clock of Redis. [Workflow.Retry] drops a deadline that has passed.
func Deadline(t time.Time) SendOption {
	return option(func(o *graph.Opts) { o.Deadline = &t })
}

// Name is the name of the workflow in listings, of 1 to 200 bytes without control characters. Several workflows may have
// the same name. Defaults to the names of its first and last task. See [Inspector.Workflows].
func Name(name string) SendOption {
	if name == "" || len(name) > 200 || !printable(name) {
		return bad("Name(%.210q): use 1 to 200 bytes of UTF-8 without control characters", name)
	}
	return option(func(o *graph.Opts) { o.Name = name })
}

// Labels adds labels to the workflow, by which [Inspector.Workflows] finds it, such as the customer or the release. A key
// has 1 to 63 letters, digits, and _ . / -, a value has no control characters, and all labels together have at most 1 KiB.
func Labels(labels map[string]string) SendOption {
	for k, v := range labels {
		if !validLabel.MatchString(k) {
			return bad("Labels: key %.70q: use 1 to 63 letters, digits, and _ . / -", k)
		}
		if !printable(v) {
			return bad("Labels: the value of %s is not UTF-8 or has a control character", k)
		}
	}
	labels = maps.Clone(labels)
	return option(func(o *graph.Opts) {
		if o.Labels == nil {
			o.Labels = map[string]string{}
		}
		maps.Copy(o.Labels, labels)
	})
}

var validLabel = regexp.MustCompile(`^[A-Za-z0-9_./-]{1,63}$`)

// printable reports whether a text is UTF-8 without control characters.
func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// Retention is how long results and states are kept after the workflow has succeeded or [Workflow.Revoke] has stopped it. Defaults to
// 24 hours.
func Retention(d time.Duration) SendOption {
	return lasting("Retention", d, 0, func(o *graph.Opts) { o.Retention = &d })
}

// FailureRetention is how long results and states are kept after the workflow has failed or was cancelled. During this time
// [Workflow.Retry] is possible. Defaults to 7 days.
func FailureRetention(d time.Duration) SendOption {
	return lasting("FailureRetention", d, 0, func(o *graph.Opts) { o.FailureRetention = &d })
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

// OverlapPolicy decides about a workflow that is sent while an earlier one is running: one with the same [Unique] key or, in a
// schedule, the one of an earlier tick.
type OverlapPolicy string

// The policies for overlapping workflows.
const (
	// OverlapAllow is the default of a schedule: both workflows run. It is not for Unique keys.
	OverlapAllow OverlapPolicy = ""
	// OverlapSkip does not send the workflow. It is the default of Unique.
	OverlapSkip OverlapPolicy = engine.OverlapSkip
	// OverlapQueue lets the workflow wait for the end of the earlier one; if another one waits, it is not sent.
	OverlapQueue OverlapPolicy = engine.OverlapQueue
	// OverlapReplace is OverlapQueue, but revokes an earlier workflow of which no task has begun, such as one that waits or has a
	// delay: the latest is the one that runs.
	OverlapReplace OverlapPolicy = engine.OverlapReplace
	// OverlapCancel cancels the earlier workflow, as [Workflow.Cancel] does, and lets the new one wait for its end.
	OverlapCancel OverlapPolicy = engine.OverlapCancel
)

// Overlap sets the policy for the send of a workflow with a [Unique] key that another workflow has. The new workflow is sent and
// waits if the policy lets it; otherwise Send returns [ErrDuplicate]. While it waits, its progress has Queued set, and it can be
// cancelled, revoked and paused; the tasks that handle its failures do not wait. All senders of a key should have the same
// policy. OverlapReplace replaces only workflows that were sent with it, or that wait.
//
// In a [Schedule] it sets the policy for ticks that are due while the workflow of an earlier tick is running; no Unique key is needed. A
// tick that is not sent counts as missed. A tick that was requested with [Schedules.Trigger] or [Schedules.Backfill] is never
// skipped: it waits, or with OverlapCancel a trigger cancels the earlier workflow.
func Overlap(p OverlapPolicy) SendOption {
	switch p {
	case OverlapAllow:
		return bad("Overlap(OverlapAllow): leave the option out: a send without a policy overlaps, a Unique key does not")
	case OverlapSkip, OverlapQueue, OverlapReplace, OverlapCancel:
		return option(func(o *graph.Opts) { o.Overlap = string(p) })
	}
	return bad("Overlap(%.50q): unknown policy", string(p))
}
