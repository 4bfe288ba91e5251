package tasks

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/internal/engine"
	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// Client sends workflows and operates queues, workers and schedules. [Client.Workflow] is the handle of one workflow, and
// [Client.Inspect] lists what there is. It may be used by many goroutines at once.
type Client struct {
	eng  *engine.Engine
	rdb  redis.UniversalClient
	owns bool
}

// Connect returns a client of a Redis, a Redis Cluster or a master that Sentinels watch, and checks that it responds.
// The url has the form that [ParseURL] reads. Close the client after use.
//
// By default go-redis also writes each failed dial to stderr; logging.Disable of its package logging ends that.
func Connect(ctx context.Context, url string, opts ...ClientOption) (*Client, error) {
	conn, err := ParseURL(url)
	if err != nil {
		return nil, err
	}
	if err := collect(opts, ClientOption.forClient).Err; err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	conn.PoolSize = cmp.Or(conn.PoolSize, 32)
	rdb := newRedis(conn)
	if err := rdb.Ping(ctx).Err(); err != nil && !Refused(err) { // a Redis whose disk is full refuses even PING
		_ = rdb.Close()
		hint := "is it running?"
		switch {
		case strings.Contains(err.Error(), "DB index"):
			hint = fmt.Sprintf("it has no database %d; use a lower number, or raise its setting databases", conn.DB)
		case errors.As(err, new(*tls.CertificateVerificationError)):
			hint = "add a private CA to the file that SSL_CERT_FILE names"
		}
		return nil, fmt.Errorf("reach Redis at %s (%s): %w", strings.Join(conn.Addrs, ", "), hint, err)
	}
	c := NewClient(rdb, opts...)
	c.owns = true
	return c, nil
}

// newRedis returns a client for opts. When a master of a cluster fails, its client learns about the promoted replica only
// when it reloads the state of the cluster, by default once a minute, and everything stalls until then.
func newRedis(opts *redis.UniversalOptions) redis.UniversalClient {
	if !opts.IsClusterMode {
		return redis.NewUniversalClient(opts)
	}
	cluster := opts.Cluster()
	cluster.ClusterStateReloadInterval = 2 * time.Second
	return redis.NewClusterClient(cluster)
}

// NewClient returns a client that uses rdb: a client of a single Redis, of a cluster, or of a master that Sentinels
// watch. It does no I/O. [Client.Close] leaves rdb open. Set ContextTimeoutEnabled in its options, as [ParseURL] does: without
// it, calls that Redis does not respond to take longer than the deadline of their context. With an invalid option, all calls of the
// client return [ErrInvalid].
func NewClient(rdb redis.UniversalClient, opts ...ClientOption) *Client {
	defaults := collect(opts, ClientOption.forClient)
	c := &Client{rdb: rdb}
	if defaults.Err != nil {
		c.rdb, c.owns = refusing(fmt.Errorf("%w: %w", ErrInvalid, defaults.Err)), true
	}
	c.eng = engine.New(c.rdb, cmp.Or(defaults.Namespace, store.DefaultNamespace), slog.New(slog.DiscardHandler))
	c.eng.Leaser.Builtin = NewMux().handlers
	if len(opts) > 0 {
		c.eng.Sender.Defaults = defaults
	}
	return c
}

// refusing returns a client of Redis whose calls return err.
func refusing(err error) redis.UniversalClient {
	return redis.NewClient(&redis.Options{MaxRetries: -1, DialerRetries: 1, Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, err }})
}

// Namespace returns the [Namespace] of c.
func (c *Client) Namespace() string { return c.eng.Namespace() }

// Redis returns the Redis client that c uses.
func (c *Client) Redis() redis.UniversalClient { return c.rdb }

// Close stops the workers that use the client, ends its subscriptions and, if [Connect] made it, closes the
// connection. It waits for the workers, but not for their handlers: running tasks return to the queue, as by
// [Worker.Kill]. To let them finish, end the context of [Worker.Run] first. After [NewClient], the caller closes the
// Redis client, after this. Close may be called again, and from a handler, but not from the Ready of a [WorkerConfig].
func (c *Client) Close() error {
	c.eng.Close()
	if !c.owns {
		return nil
	}
	if err := c.rdb.Close(); !errors.Is(err, redis.ErrClosed) {
		return wrap(err, "close Redis connection")
	}
	return nil
}

// Writable checks that Redis responds and accepts writes. Its error names the reason and the next step. [Refused]
// reports true for the error if the state of Redis is temporary, such as a full disk.
func (c *Client) Writable(ctx context.Context) error {
	return c.eng.Store().Writable(ctx)
}

// CancelAll cancels the running workflows that f selects, as [Workflow.Cancel] does, and returns how many it has cancelled,
// including workflows that were cancelled before and have not ended. The State of f is empty or running; its Limit is ignored.
// Workflows that are sent during the call are not cancelled. Errors and memory are as of [Client.RetryAll].
func (c *Client) CancelAll(ctx context.Context, f tasktype.WorkflowFilter) (cancelled int, err error) {
	cancelled, err = c.eng.Inspector.ChangeAll(ctx, f, tasktype.WorkflowRunning, func(ctx context.Context, ref string) error { return c.Workflow(ref).Cancel(ctx) })
	return cancelled, wrap(err, "cancel workflows")
}

// PauseQueue stops all workers from taking tasks from a queue. Tasks that are running continue.
func (c *Client) PauseQueue(ctx context.Context, queue string) error {
	return c.eng.Store().Queues.Pause(ctx, queue)
}

// ResumeQueue ends a pause of [Client.PauseQueue].
func (c *Client) ResumeQueue(ctx context.Context, queue string) error {
	return c.eng.Fleet.Resume(ctx, queue)
}

// SetConcurrency makes the live worker with this name run n tasks at once, or all live workers if the name is empty.
// It does not stop running tasks, and workers that start later are not affected. It returns [ErrNotFound], and [ErrInvalid]
// for less than 1 or more than the MaxConcurrency of a worker.
func (c *Client) SetConcurrency(ctx context.Context, worker string, n int) error {
	if n < 1 {
		return fmt.Errorf("%w %d: at least one task must run; pause the queues to stop work", engine.ErrConcurrency, n)
	}
	return wrap(c.eng.Fleet.SetConcurrency(ctx, worker, n), "set concurrency")
}

// ExpireLeases makes the tasks that dead workers were running available to other workers at once. The workers are given
// by the Name of their [WorkerConfig]. Call it only for workers that are known to be dead. Without it, other workers find
// a dead worker after 4 to 6 seconds.
func (c *Client) ExpireLeases(ctx context.Context, workers ...string) error {
	return wrap(c.eng.Fleet.Expire(ctx, workers), "expire leases")
}

// wrap returns err with the operation that has failed; nil for nil.
func wrap(err error, operation string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(operation, args...), err)
}

// Sending is a workflow for [Client.SendMany]. It is data: json.Marshal compiles it, and json.Unmarshal returns one that sends the same, also
// in another program of the release. Package outbox stores it in a database.
type Sending struct {
	Work    Work
	Options []SendOption
}

func (s Sending) parts() (*graph.Sig, *graph.Opts) {
	if s.Work == nil {
		return &graph.Sig{Shape: graph.Value, Err: errors.New("it has no work")}, graph.NoOpts
	}
	return s.Work.work(), collect(s.Options, SendOption.forSend)
}

// MarshalJSON returns an object of at most 1 MiB, whose "id" is the ID of the workflow: that of [ID], or a generated one. Each time the object
// is sent, it is the same workflow: SendMany returns [ErrDuplicate] or no error. [SendDefaults] do not apply. The error is [ErrInvalid].
func (s Sending) MarshalJSON() ([]byte, error) {
	return engine.Pack(s.parts())
}

// UnmarshalJSON implements json.Unmarshaler. No options can be added to the result. The error is [ErrInvalid].
func (s *Sending) UnmarshalJSON(data []byte) error {
	sig, opts, err := engine.Unpack(data)
	if err != nil {
		return err
	}
	if id := cmp.Or(opts.ID, opts.NewID); !validID.MatchString(id) {
		return fmt.Errorf("%w: id %.110q of a stored send", ErrInvalid, id)
	}
	s.Work, s.Options = Signature[any]{sig}, []SendOption{option(func(o *graph.Opts) { *o = *opts })}
	return nil
}

// Sent is the result of a [Sending].
type Sent struct {
	ID  string // with ErrDuplicate, of the workflow that has the ID or unique key; empty with other errors
	Err error
}

// SendMany sends many workflows, as [Signature.Send] does, in few round trips. It returns a result for each of sends, in their
// order. A workflow that cannot be sent does not affect the others; err is nil if all were sent. The workflows are not sent as
// a whole: if the program is killed, some of them may have been sent. [Attach] returns the handle of a workflow.
func (c *Client) SendMany(ctx context.Context, sends []Sending) (results []Sent, err error) {
	list := make([]engine.Sending, len(sends))
	for i, s := range sends {
		list[i].Sig, list[i].Opts = s.parts()
	}
	results = make([]Sent, len(sends))
	failed := 0
	for i, r := range c.eng.Sender.SendMany(ctx, list) {
		if r.Ref != "" {
			results[i].ID = store.IDOf(r.Ref)
		}
		if r.Err == nil {
			continue
		}
		results[i].Err = fmt.Errorf("send workflow: %w", r.Err)
		if failed++; failed == 1 {
			err = results[i].Err
		}
	}
	if failed > 0 {
		err = fmt.Errorf("%d of %d workflows were not sent; the first: %w", failed, len(sends), err)
	}
	return results, err
}
