package redistest

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Traffic counts the commands sent and the bytes received by a client. It is a redis.Hook.
type Traffic struct{ commands, bytes atomic.Int64 }

// NewTraffic returns a client of the Redis at an address, such as from [URL], and its traffic.
func NewTraffic(tb testing.TB, address string) (*redis.Client, *Traffic) {
	tb.Helper()
	t, rdb := &Traffic{}, redis.NewClient(options(tb, address))
	rdb.AddHook(t)
	tb.Cleanup(func() { _ = rdb.Close() })
	return rdb, t
}

// Take returns the commands and bytes since the last call. Each command of a pipeline counts.
func (t *Traffic) Take() (commands, bytes int64) { return t.commands.Swap(0), t.bytes.Swap(0) }

// DialHook implements redis.Hook.
func (t *Traffic) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return countedConn{c, &t.bytes}, nil
	}
}

// ProcessHook implements redis.Hook.
func (t *Traffic) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		t.commands.Add(1)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (t *Traffic) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		t.commands.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

// countedConn counts the bytes received.
type countedConn struct {
	net.Conn
	bytes *atomic.Int64
}

func (c countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}
