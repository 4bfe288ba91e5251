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

// useExternal uses the Redis at url. It is never stopped.
func (s *Server) useExternal(ctx context.Context, url string) error {
	if err := s.cfg.await(ctx, url, nil); err != nil {
		return err
	}
	t, err := inspect(ctx, url, s.cfg.PingTimeout)
	if err != nil {
		return err
	}
	if t.replica {
		return fmt.Errorf("use the Redis at %s: %w; use the address of its master", Redact(url), ErrReplica)
	}
	s.mode, s.url, s.warnings = External, url, t.warnings()
	s.guarantee = fmt.Sprintf("External Redis at %s; Muster never stops it, and %s.", Redact(url), t.guarantee())
	return nil
}

// traits are the relevant properties of an external Redis.
type traits struct {
	version    string
	replica    bool
	appendOnly bool
	snapshots  bool
	unknown    bool // persistence is not reported
}

// inspect reads the traits of a Redis. Managed services and miniredis do not report all of them; this is not an error.
func inspect(ctx context.Context, url string, limit time.Duration) (traits, error) {
	rdb, err := connect(url, limit)
	if err != nil {
		return traits{}, err
	}
	defer rdb.Close()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	info := func(section string) map[string]string {
		text, err := rdb.Info(ctx, section).Result()
		if err != nil {
			return nil
		}
		return parseInfo(text)
	}
	var t traits
	t.version = info("server")["redis_version"]
	if _, one := rdb.(*redis.Client); one { // nodes of a cluster have different roles
		t.replica = info("replication")["role"] == "slave"
	}

	persistence := info("persistence")
	t.unknown = persistence["aof_enabled"] == ""
	t.appendOnly = persistence["aof_enabled"] == "1"
	// CONFIG is often forbidden. In that case, existing snapshots show that snapshots are enabled.
	if save, err := rdb.ConfigGet(ctx, "save").Result(); err == nil {
		t.snapshots = save["save"] != ""
	} else {
		t.snapshots = persistence["rdb_saves"] != "" && persistence["rdb_saves"] != "0"
	}
	return t, nil
}

func parseInfo(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			out[name] = value
		}
	}
	return out
}

// warnings returns recommendations for the operator.
func (t traits) warnings() []string {
	var out []string
	switch {
	case t.unknown:
	case !t.appendOnly && !t.snapshots:
		out = append(out, "this Redis has no persistence: a restart loses all jobs; set appendonly yes")
	case !t.appendOnly:
		out = append(out, "this Redis uses only snapshots: a crash loses the last minutes; set appendonly yes")
	}
	if old(t.version) {
		out = append(out, "this Redis has version "+t.version+"; Muster requires 6.2 or later")
	}
	return out
}

// guarantee describes the durability of the Redis in half a sentence.
func (t traits) guarantee() string {
	switch {
	case t.unknown:
		return "its persistence is unknown"
	case t.appendOnly:
		return "its append-only file survives a restart"
	case t.snapshots:
		return "a restart may lose the writes since its last snapshot"
	}
	return "a restart loses all data, because persistence is off"
}

func old(version string) bool {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return false
	}
	return major < 6 || major == 6 && minor < 2
}

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
