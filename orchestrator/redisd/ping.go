package redisd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"muster/tasks"
)

// ErrURL says that a Redis address cannot be understood.
var ErrURL = errors.New("not the address of a Redis")

// Ping asks the Redis at url whether it is there, and gives it limit to
// answer. It always returns: no answer is an error that says what to do. One
// that takes no writes, as when its disk is full, is there.
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

func init() {
	// go-redis reports every failed dial on stderr; here each becomes an error
	// or is tried again.
	redis.SetLogger(quiet{})
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

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

// RefusesLogin reports whether err is a Redis's answer to no password or a
// wrong one.
func RefusesLogin(err error) bool { return redis.IsAuthError(err) }

// Redact returns the address without its password, for logs and messages.
func Redact(address string) string { return mask(address, "xxxxx") }

// withoutPassword is Redact with nothing in the password's place: an address
// that can be used where none is needed.
func withoutPassword(address string) string { return mask(address, "") }

func mask(address, password string) string {
	const unreadable = "(unreadable address)"
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok {
		return unreadable
	}
	cut := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		cut = i
	}
	hosts, tail := rest[:cut], rest[cut:]
	login := ""
	if i := strings.LastIndexByte(hosts, '@'); i >= 0 {
		login, hosts = hosts[:i], hosts[i+1:]
	}
	u, err := url.Parse("x:" + tail)
	if err != nil || strings.ContainsAny(hosts, " %") || strings.Contains(tail, "@") {
		return unreadable // part of it may be part of a password
	}
	if user, _, ok := strings.Cut(login, ":"); ok {
		login = user
		if password != "" {
			login += ":" + password
		}
	}
	if login != "" {
		login += "@"
	}
	q := u.Query()
	for key := range q {
		if strings.Contains(strings.ToLower(key), "password") {
			if q.Del(key); password != "" {
				q.Set(key, password)
			}
		}
	}
	path, _, _ := strings.Cut(tail, "?")
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	return scheme + "://" + login + hosts + path
}

// pingError is a PING that got no PONG.
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

// notRedis reports whether something else than a Redis has answered.
func (e *pingError) notRedis() bool {
	text := e.err.Error()
	return strings.HasPrefix(text, "redis: can't parse") || strings.HasPrefix(text, "redis: invalid reply")
}

// hopeless reports whether asking again would give the same.
func (e *pingError) hopeless() bool {
	var dns *net.DNSError
	return e.notRedis() || errors.As(e.err, &dns) && dns.IsNotFound ||
		e.refuses("NOAUTH", "WRONGPASS", "ERR invalid password", "NOPERM", "ERR AUTH", "ERR Client sent AUTH", "ERR DB index", "ERR invalid DB index")
}

// await pings until the Redis answers: as often as cfg says, but for as long
// as ctx allows while it is loading its data. It gives up early when gone is
// closed or when trying again cannot help.
func (c Config) await(ctx context.Context, url string, gone <-chan struct{}) error {
	for tries := 1; ; tries++ {
		// A new client each time: one whose dial has failed rests for a second.
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
