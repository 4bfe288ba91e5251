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

// ErrURL means that a Redis address is invalid.
var ErrURL = errors.New("invalid Redis address")

// Ping checks that the Redis at url responds within limit. The error contains advice. A Redis that rejects writes, for example
// because its disk is full, counts as responding.
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

// connect returns a client for a few commands, with one connection and no retries.
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

// RefusesLogin reports whether err is the error of a Redis for a missing or wrong password.
func RefusesLogin(err error) bool { return redis.IsAuthError(err) }

// pingError is the error of a failed PING.
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
		return fmt.Sprintf("Redis at %s rejected the login: %v; use an address with user and password, redis://user:password@host:port", e.url, e.err)
	case e.notRedis():
		return fmt.Sprintf("the server at %s is not a Redis: %v; correct the address", e.url, e.err)
	case errors.Is(e.err, syscall.ECONNREFUSED):
		return fmt.Sprintf("no Redis at %s: connection refused", e.url)
	case errors.Is(e.err, os.ErrDeadlineExceeded), errors.Is(e.err, context.DeadlineExceeded):
		return fmt.Sprintf("Redis at %s does not respond", e.url)
	}
	return fmt.Sprintf("no Redis at %s: %v", e.url, e.err)
}

func (e *pingError) loading() bool { return e.refuses("LOADING") }

// refuses reports whether Redis replied with an error of one of kinds.
func (e *pingError) refuses(kinds ...string) bool {
	var reply redis.Error
	if !errors.As(e.err, &reply) {
		return false
	}
	for _, kind := range kinds {
		if strings.HasPrefix(reply.Error(), kind) {
			return true
		}
	}
	return false
}

// notRedis reports whether the server does not speak the Redis protocol.
func (e *pingError) notRedis() bool {
	text := e.err.Error()
	return strings.HasPrefix(text, "redis: can't parse") || strings.HasPrefix(text, "redis: invalid reply")
}

// hopeless reports whether a retry would fail in the same way.
func (e *pingError) hopeless() bool {
	var dns *net.DNSError
	return e.notRedis() || errors.As(e.err, &dns) && dns.IsNotFound ||
		e.refuses("NOAUTH", "WRONGPASS", "ERR invalid password", "NOPERM", "ERR AUTH", "ERR Client sent AUTH", "ERR DB index", "ERR invalid DB index")
}

// await pings until Redis responds: at most Config.Attempts times, not counting pings while Redis loads its data. It returns
// early when ctx is done, gone is closed, or the error is permanent.
func (c Config) await(ctx context.Context, url string, gone <-chan struct{}) error {
	for tries := 1; ; tries++ {
		// A new client for each attempt, because a client waits for a second after a failed dial.
		err := Ping(ctx, url, c.PingTimeout)
		if err == nil {
			return nil
		}
		var failed *pingError
		if !errors.As(err, &failed) || failed.hopeless() {
			return err
		}
		if failed.loading() {
			tries--
		}
		if tries >= c.Attempts {
			return fmt.Errorf("%w (%d attempts)", err, tries)
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
