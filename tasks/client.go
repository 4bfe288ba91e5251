package tasks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/redis/go-redis/v9"

	"muster/tasks/internal/engine"
)

// Client sends workflows, and reads and changes their state. It may be used by many goroutines at once.
type Client struct {
	eng  *engine.Engine
	rdb  redis.UniversalClient
	owns bool
}

// Connect opens a client on a Redis, a Redis Cluster or a group of Redis that Sentinels watch, whose
// address is as [ParseURL] reads it, and checks that it answers.
func Connect(ctx context.Context, url string) (*Client, error) {
	opts, err := ParseURL(url)
	if err != nil {
		return nil, err
	}
	opts.PoolSize = max(opts.PoolSize, 32)
	rdb := redis.NewUniversalClient(opts)
	if err := rdb.Ping(ctx).Err(); err != nil && !Refused(err) { // one whose disk is full refuses even this
		_ = rdb.Close()
		return nil, fmt.Errorf("reach Redis at %s (is it running?): %w", strings.Join(opts.Addrs, ", "), err)
	}
	c := NewClient(rdb)
	c.owns = true
	return c, nil
}

// NewClient returns a client that uses rdb, a single Redis, a cluster or a Sentinel failover client.
// Close leaves rdb open.
func NewClient(rdb redis.UniversalClient) *Client {
	return &Client{eng: engine.New(rdb, slog.New(slog.DiscardHandler), codeOf), rdb: rdb}
}

// Redis returns the connection the client uses.
func (c *Client) Redis() redis.UniversalClient { return c.rdb }

// Close stops the workers that run with the client, ends its subscriptions and, if Connect opened it,
// closes the connection. It waits for the workers, but not for their handlers: what still runs is given
// back, as by [Worker.Kill]. End the context of [Worker.Run] first to let running tasks finish. Where the
// connection is the caller's, it must be closed after this. Close may be called again, and from a handler,
// but not from the Ready of a [WorkerConfig].
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

// Ping checks that Redis answers.
func (c *Client) Ping(ctx context.Context) error {
	if err := c.rdb.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("ping Redis: %w", err)
	}
	return nil
}

// Writable reports that Redis answers and takes writes. Its error says why it takes none and what to do; it is
// one that [Refused] knows while that ends by itself, as when the disk of Redis is full.
func (c *Client) Writable(ctx context.Context) error {
	return c.eng.Fleet.Writable(ctx)
}

// Revoke stops the workflow with an id; see [AsyncResult.Revoke].
func (c *Client) Revoke(ctx context.Context, id string) error {
	if err := c.eng.Revoker.Revoke(ctx, id); err != nil {
		return fmt.Errorf("revoke workflow %s: %w", id, err)
	}
	return nil
}

// RevokeNode stops one node of a workflow. What needs its value is skipped.
func (c *Client) RevokeNode(ctx context.Context, id, node string) error {
	if err := c.eng.Revoker.Node(ctx, id, node); err != nil {
		return fmt.Errorf("revoke node %s of workflow %s: %w", node, id, err)
	}
	return nil
}

// PauseQueue stops all workers from taking work of a queue; what runs goes on.
func (c *Client) PauseQueue(ctx context.Context, queue string) error {
	return c.eng.Fleet.Pause(ctx, queue)
}

// ResumeQueue undoes PauseQueue.
func (c *Client) ResumeQueue(ctx context.Context, queue string) error {
	return c.eng.Fleet.Resume(ctx, queue)
}

// SetConcurrency makes the live worker with a name, or all when it is empty, run n tasks at once,
// until it ends. What runs beyond n goes on.
func (c *Client) SetConcurrency(ctx context.Context, worker string, n int) error {
	if n < 1 {
		return fmt.Errorf("concurrency %d: at least one task must run; pause the queues to stop work", n)
	}
	if err := c.eng.Fleet.SetConcurrency(ctx, worker, n); err != nil {
		return fmt.Errorf("set concurrency: %w", err)
	}
	return nil
}

// ExpireLeases makes everything runnable again that dead workers were running. A worker is named by
// the name of its [WorkerConfig]. Call it only for workers that are known to be dead: workers that
// fall silent are found by the others after 9 to 12 seconds.
func ExpireLeases(ctx context.Context, c *Client, workers ...string) error {
	if err := c.eng.Fleet.Expire(ctx, workers); err != nil {
		return fmt.Errorf("expire leases: %w", err)
	}
	return nil
}
