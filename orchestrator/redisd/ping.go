package redisd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"muster/tasks"
)

// ErrURL says that a Redis address cannot be parsed.
var ErrURL = errors.New("not the address of a Redis")

// Ping returns an error unless the Redis at url answers within limit. The error
// says what to do. A Redis that takes no writes, as when its disk is full,
// counts as answering.
func Ping(ctx context.Context, url string, limit time.Duration) error {
	rdb, err := connect(url, limit)
	if err != nil {
		return err
	}
	defer rdb.Close()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := rdb.Ping(ctx).Err(); err != nil && !tasks.Refused(err) {
		return &pingError{url: Redact(url), err: err}
	}
	return nil
}

// connect makes a client for a few questions: one connection, no retries.
func connect(address string, limit time.Duration) (redis.UniversalClient, error) {
	opt, err := tasks.ParseURL(address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	opt.DialTimeout, opt.ReadTimeout, opt.WriteTimeout = limit, limit, limit
	opt.PoolSize, opt.MaxRetries, opt.DialerRetries = 1, -1, 1
	opt.ContextTimeoutEnabled, opt.DisableIdentity = true, true
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewUniversalClient(opt), nil
}

// RefusesLogin reports whether err is the answer of a Redis to a missing or
// wrong password.
func RefusesLogin(err error) bool { return redis.IsAuthError(err) }

// pingError is a PING without a PONG.
type pingError struct {
	url string
	err error
}

func (e *pingError) Unwrap() error { return e.err }

func (e *pingError) Error() string {
	switch {
	case e.loading():
		return fmt.Sprintf("Redis at %s is still loading its data", e.url)
	case e.refuses("NOAUTH", "WRONGPASS", "ERR invalid password", "NOPERM", "ERR AUTH", "ERR Client sent AUTH"):
		return fmt.Sprintf("Redis at %s refuses the login: %v; put user and password into the address, redis://user:password@host:port", e.url, e.err)
	case e.notRedis():
		return fmt.Sprintf("what answers at %s is not a Redis: %v; correct the address", e.url, e.err)
	case errors.Is(e.err, syscall.ECONNREFUSED):
		return fmt.Sprintf("no Redis at %s: connection refused", e.url)
	case errors.Is(e.err, os.ErrDeadlineExceeded), errors.Is(e.err, context.DeadlineExceeded):
		return fmt.Sprintf("Redis at %s does not answer", e.url)
	}
	return fmt.Sprintf("no Redis at %s: %v", e.url, e.err)
}

func (e *pingError) loading() bool { return e.refuses("LOADING") }

// refuses reports whether a Redis answered with an error of that kind.
func (e *pingError) refuses(kinds ...string) bool {
	var answer redis.Error
	if !errors.As(e.err, &answer) {
		return false
	}
	for _, kind := range kinds {
		if strings.HasPrefix(answer.Error(), kind) {
			return true
		}
	}
	return false
}

// notRedis reports whether the answer is not that of a Redis.
func (e *pingError) notRedis() bool {
	text := e.err.Error()
	return strings.HasPrefix(text, "redis: can't parse") || strings.HasPrefix(text, "redis: invalid reply")
}

// hopeless reports whether another PING would fail in the same way.
func (e *pingError) hopeless() bool {
	var dns *net.DNSError
	return e.notRedis() || errors.As(e.err, &dns) && dns.IsNotFound ||
		e.refuses("NOAUTH", "WRONGPASS", "ERR invalid password", "NOPERM", "ERR AUTH", "ERR Client sent AUTH", "ERR DB index", "ERR invalid DB index")
}

// await pings until the Redis answers: Config.Attempts times, or until ctx is
// done while the Redis loads its data. It returns early when gone is closed or
// the error is hopeless.
func (c Config) await(ctx context.Context, url string, gone <-chan struct{}) error {
	for tries := 1; ; tries++ {
		// A new client each time: after a failed dial one waits for a second.
		err := Ping(ctx, url, c.PingTimeout)
		if err == nil {
			return nil
		}
		var asked *pingError
		if !errors.As(err, &asked) || asked.hopeless() {
			return err
		}
		if asked.loading() {
			tries--
		}
		if tries >= c.Attempts {
			return fmt.Errorf("%w (%d tries)", err, tries)
		}
		select {
		case <-time.After(c.Interval):
		case <-gone:
			return err
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}
