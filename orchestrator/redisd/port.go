package redisd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// errPortTaken means that another process uses the port.
var errPortTaken = errors.New("port in use")

// atPort calls start with a free port. It retries with another port if a process takes the port in the meantime.
func (c Config) atPort(start func(port int) error) error {
	const tries = 5
	for try := 1; ; try++ {
		port, err := c.choosePort()
		if err != nil {
			return err
		}
		err = start(port)
		if !errors.Is(err, errPortTaken) && !errors.Is(err, syscall.EADDRINUSE) || try == tries {
			return err
		}
	}
}

// lastPort returns the port of the last Redis on this data directory.
func (d folder) lastPort() (int, error) {
	b, err := os.ReadFile(d.portFile())
	if err != nil {
		return 0, err
	}
	port, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err == nil && (port <= 0 || port > 65535) {
		err = strconv.ErrRange
	}
	return port, err
}

// rememberPort stores the port for the next start.
func (d folder) rememberPort(port int) error {
	return os.WriteFile(d.portFile(), []byte(strconv.Itoa(port)), 0o600)
}

// choosePort returns the configured port, the last port of this data directory (so that clients can reconnect) or any free
// port, in this order.
func (c Config) choosePort() (int, error) {
	if c.Port != 0 {
		if err := tryPort(c.Port); err != nil {
			return 0, fmt.Errorf("%w: %w; set redis.port to another port, or to 0 for any port", errPortTaken, err)
		}
		return c.Port, nil
	}
	if port, err := c.folder().lastPort(); err == nil && tryPort(port) == nil {
		return port, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func tryPort(port int) error {
	for try := 1; ; try++ {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return l.Close()
		}
		if try == 5 {
			return err
		}
		time.Sleep(10 * time.Millisecond) // a forked child keeps closed sockets open until its exec
	}
}

// commandLimit is the timeout of a command with a bounded context, including retries.
const commandLimit = 3 * time.Second

// ErrSilent means that Redis did not reply in time.
var ErrSilent = errors.New("no reply from Redis; try again later")

// Bounded returns a context for a request with a waiting client. With it, commands of a Redis client that was passed to Bound
// fail with ErrSilent after three seconds without a reply. The following commands of the request fail immediately for some
// seconds, so that the request finishes.
func Bounded(ctx context.Context) context.Context {
	return context.WithValue(ctx, boundKey{}, new(bound))
}

// Bound makes the commands of rdb respect Bounded. It does not affect other contexts.
func Bound(rdb redis.UniversalClient) { rdb.AddHook(boundHook{}) }

type boundKey struct{}

// bound is the state of a bounded context.
type bound struct {
	silent atomic.Int64 // time of the last command without a reply, in Unix nanoseconds
}

// run calls send, which sends commands and returns their error.
func (b *bound) run(ctx context.Context, send func(context.Context) error) error {
	err := fmt.Errorf("%w: %w", ErrSilent, context.DeadlineExceeded)
	if time.Since(time.Unix(0, b.silent.Load())) < 2*commandLimit {
		return err
	}
	limited, cancel := context.WithTimeoutCause(ctx, commandLimit, err)
	defer cancel()
	sent := send(limited)
	if sent != nil && ctx.Err() == nil && limited.Err() != nil {
		b.silent.Store(time.Now().UnixNano())
		return err
	}
	return sent
}

// boundHook applies Bounded to the commands of a client.
type boundHook struct{}

func (boundHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (boundHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		b, ok := ctx.Value(boundKey{}).(*bound)
		if !ok {
			return next(ctx, cmd)
		}
		return b.run(ctx, func(ctx context.Context) error { return next(ctx, cmd) })
	}
}

func (boundHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		b, ok := ctx.Value(boundKey{}).(*bound)
		if !ok {
			return next(ctx, cmds)
		}
		err := b.run(ctx, func(ctx context.Context) error { return next(ctx, cmds) })
		if errors.Is(err, ErrSilent) {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		}
		return err
	}
}
