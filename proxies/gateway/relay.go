package gateway

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// relay copies between a client, whose side is read from from, and a target, until both are done, nothing has moved for
// Config.Idle, or ctx is done.
func (g *Gateway) relay(ctx context.Context, client *clientConn, from io.Reader, target net.Conn) {
	stop := context.AfterFunc(ctx, func() { target.Close() })
	defer stop()
	idle := &idleTimer{after: g.cfg.Idle, conns: []net.Conn{client.Conn, target}}
	idle.touch()
	var group sync.WaitGroup
	group.Go(func() {
		_, _ = io.Copy(idle.writer(target), from)
		if half, ok := target.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	})
	_, _ = io.Copy(idle.writer(client.Conn), target)
	_ = client.CloseWrite()
	// In all protocols that are used through proxies, a target that has ended its side ignores what still comes.
	_ = client.SetReadDeadline(time.Now().Add(5 * time.Second))
	group.Wait()
}

// idleTimer sets the deadlines of a relay anew whenever something moves, at most once a second.
type idleTimer struct {
	after time.Duration
	conns []net.Conn
	last  atomic.Int64 // unix nanoseconds of the last touch
}

func (t *idleTimer) touch() {
	now := time.Now()
	if last := t.last.Load(); now.UnixNano()-last < int64(time.Second) || !t.last.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	for _, c := range t.conns {
		_ = c.SetDeadline(now.Add(t.after))
	}
}

func (t *idleTimer) writer(w io.Writer) io.Writer { return &idleWriter{w, t} }

// idleWriter notes each write with its timer.
type idleWriter struct {
	io.Writer
	timer *idleTimer
}

func (w *idleWriter) Write(b []byte) (int, error) {
	w.timer.touch()
	return w.Writer.Write(b)
}
