package gateway

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	minKey        = 8           // bytes
	maxFailures   = 20          // per client and failureWindow; further logins are rejected until the end of the window
	failureWindow = time.Minute // starts with the first failure
	maxClients    = 10_000      // number of clients with failures; the clients beyond it share one counter
	logEvery      = 10 * time.Second
)

// errNoKey rejects a client without a valid key.
var errNoKey = errors.New("a key is required; send it as the proxy password")

// blockedError rejects a client with too many failed logins, even with a valid key.
type blockedError struct{ after time.Duration }

func (e *blockedError) Error() string {
	return "too many failed logins from this address; retry after " + e.after.Round(time.Second).String()
}

// logins checks the keys of clients and limits how often each client may fail.
type logins struct {
	logger *slog.Logger
	keys   atomic.Pointer[[][sha256.Size]byte] // hashes, so that comparisons do not reveal the length of a key

	mu       sync.Mutex // guards the fields below
	failures map[string]failures
	logged   time.Time // time of the last log line
	unlogged int       // failures since then
}

// failures counts the failed logins of a client in a window.
type failures struct {
	n   int
	end time.Time
}

// setKeys replaces the keys. Without keys, every client is accepted.
func (l *logins) setKeys(keys []string) {
	hashes := make([][sha256.Size]byte, len(keys))
	for i, key := range keys {
		hashes[i] = sha256.Sum256([]byte(key))
	}
	l.keys.Store(&hashes)
}

// required reports whether clients need a key.
func (l *logins) required() bool { return len(*l.keys.Load()) > 0 }

// check returns nil if the password is a key, errNoKey otherwise, or a *blockedError.
func (l *logins) check(client, password string) error {
	if !l.required() {
		return nil
	}
	hash, valid := sha256.Sum256([]byte(password)), 0
	for _, key := range *l.keys.Load() {
		valid |= subtle.ConstantTimeCompare(key[:], hash[:])
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if _, ok := l.failures[client]; !ok && len(l.failures) >= maxClients {
		client = "further clients"
	}
	f := l.failures[client]
	if f.n >= maxFailures && now.Before(f.end) {
		return &blockedError{f.end.Sub(now)}
	}
	switch {
	case valid == 1:
		return nil
	case password == "": // many clients send the key only after a 407
		return errNoKey
	}
	l.fail(client, now)
	return errNoKey
}

// fail counts and logs a failed login. The caller holds mu.
func (l *logins) fail(client string, now time.Time) {
	if len(l.failures) >= maxClients {
		for other, f := range l.failures {
			if !now.Before(f.end) {
				delete(l.failures, other)
			}
		}
	}
	if l.failures == nil {
		l.failures = map[string]failures{}
	}
	f := l.failures[client]
	if !now.Before(f.end) {
		f = failures{end: now.Add(failureWindow)}
	}
	f.n++
	l.failures[client] = f
	l.unlogged++
	if now.Sub(l.logged) >= logEvery {
		l.logger.Warn("failed logins at the proxy gateway", "client", client, "blocked", f.n >= maxFailures, "failures", l.unlogged)
		l.logged, l.unlogged = now, 0
	}
}
