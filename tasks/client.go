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
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// Client sends workflows, and reads and changes their state. It may be used by many goroutines at once.
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
	if err := c.rdb.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		return fmt.Errorf("close Redis connection: %w", err)
	}
	return nil
}

// Ping checks that Redis responds.
func (c *Client) Ping(ctx context.Context) error {
	if err := c.rdb.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("ping Redis: %w", err)
	}
	return nil
}

// Writable checks that Redis responds and accepts writes. Its error names the reason and the next step. [Refused]
// reports true for the error if the state of Redis is temporary, such as a full disk.
func (c *Client) Writable(ctx context.Context) error {
	return c.eng.Fleet.Writable(ctx)
}

// Revoke stops the workflow with this id; see [AsyncResult.Revoke].
func (c *Client) Revoke(ctx context.Context, id string) error {
	if err := c.eng.Operator.Revoke(ctx, id); err != nil {
		return fmt.Errorf("revoke workflow %s: %w", store.IDOf(id), err)
	}
	return nil
}

// Cancel cancels the workflow with this id: its tasks that have not begun fail with the code "cancelled". The contexts of
// running handlers are cancelled with the cause [ErrCancelled]; an attempt that returns an error fails with that code and is
// not repeated, one that succeeds counts. Failures are handled as always: tasks of [Signature.Rescue] and [OnError],
// and tasks that receive the outcomes of [Settle], run with their plans, but not the tasks that follow them. The
// status of the workflow is FAILURE, unless its last task handles failures.
//
// Cancel needs no worker, and does nothing for a workflow that was cancelled before. It returns [ErrUnknown], [ErrEnded] for a
// workflow that has ended otherwise, and [ErrRevoked] for one that was revoked. [Client.Revoke] stops a workflow without
// handling failures, also a cancelled one.
func (c *Client) Cancel(ctx context.Context, id string) error {
	if err := c.eng.Operator.Cancel(ctx, id); err != nil {
		return fmt.Errorf("cancel workflow %s: %w", store.IDOf(id), err)
	}
	return nil
}

// CancelAll cancels the running workflows that f selects, as [Client.Cancel] does, and returns how many it has cancelled,
// including workflows that were cancelled before and have not ended. The State of f is empty or running; its Limit is ignored.
// Workflows that are sent during the call are not cancelled. Errors and memory are as of [Client.RetryAll].
func (c *Client) CancelAll(ctx context.Context, f tasktype.WorkflowFilter) (cancelled int, err error) {
	cancelled, err = c.eng.Inspector.CancelAll(ctx, f, c.Cancel)
	if err != nil {
		return cancelled, fmt.Errorf("cancel workflows: %w", err)
	}
	return cancelled, nil
}

// Pause keeps the tasks of the workflow with this id from starting until [Client.Resume]. Running attempts continue and their
// results count; a task that a worker has taken in the last 20 ms may still start. Retries and delayed tasks that are due in the
// meantime start after Resume; [Expires] and the deadlines of external tasks apply. The progress of the workflow has Paused set.
//
// A paused workflow can be cancelled, which ends the pause, and revoked. A workflow whose last task ends during the pause has
// ended. Pause needs no worker, and does nothing for a paused workflow. It returns [ErrUnknown], [ErrEnded], and [ErrCancelled] or
// [ErrRevoked] for a workflow that was stopped.
func (c *Client) Pause(ctx context.Context, id string) error {
	if err := c.eng.Operator.Pause(ctx, id, true); err != nil {
		return fmt.Errorf("pause workflow %s: %w", store.IDOf(id), err)
	}
	return nil
}

// Resume ends a pause of [Client.Pause]. It does nothing for a workflow that is not paused, and returns the errors of Pause.
func (c *Client) Resume(ctx context.Context, id string) error {
	if err := c.eng.Operator.Pause(ctx, id, false); err != nil {
		return fmt.Errorf("resume workflow %s: %w", store.IDOf(id), err)
	}
	return nil
}

// RevokeNode stops one node of a workflow. The nodes that need its value are skipped. It returns [ErrUnknown] or [ErrNoNode].
func (c *Client) RevokeNode(ctx context.Context, id, node string) error {
	if err := c.eng.Operator.Node(ctx, id, node); err != nil {
		return fmt.Errorf("revoke node %s of workflow %s: %w", node, id, err)
	}
	return nil
}

// PauseQueue stops all workers from taking tasks from a queue. Tasks that are running continue.
func (c *Client) PauseQueue(ctx context.Context, queue string) error {
	return c.eng.Fleet.Pause(ctx, queue)
}

// ResumeQueue ends a pause of [Client.PauseQueue].
func (c *Client) ResumeQueue(ctx context.Context, queue string) error {
	return c.eng.Fleet.Resume(ctx, queue)
}

// SetConcurrency makes the live worker with this name run n tasks at once, or all live workers if the name is empty.
// It does not stop running tasks, and workers that start later are not affected. It returns [ErrNoWorker], and [ErrConcurrency]
// for less than 1 or more than the MaxConcurrency of a worker.
func (c *Client) SetConcurrency(ctx context.Context, worker string, n int) error {
	if n < 1 {
		return fmt.Errorf("%w %d: at least one task must run; pause the queues to stop work", ErrConcurrency, n)
	}
	if err := c.eng.Fleet.SetConcurrency(ctx, worker, n); err != nil {
		return fmt.Errorf("set concurrency: %w", err)
	}
	return nil
}

// ExpireLeases makes the tasks that dead workers were running available to other workers at once. The workers are given
// by the Name of their [WorkerConfig]. Call it only for workers that are known to be dead. Without it, other workers find
// a dead worker after 9 to 12 seconds.
func ExpireLeases(ctx context.Context, c *Client, workers ...string) error {
	if err := c.eng.Fleet.Expire(ctx, workers); err != nil {
		return fmt.Errorf("expire leases: %w", err)
	}
	return nil
}
