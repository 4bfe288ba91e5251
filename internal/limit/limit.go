// Package limit provides distributed limits: on concurrency ([KeyedLimiter]), on rate ([TokenBucket]), on the
// interval between uses ([Pacer]), and a circuit breaker ([Breaker]).
//
// The state of each key is in Redis and is changed by one script with the clock of Redis, so that all processes share
// the same limit, whatever their own clocks. The slots of a dead process expire.
//
// [ParseHostKey] returns the key for the host of a URL.
//
// If Redis is unreachable, a limit with FailOpen allows all requests and logs a warning; without FailOpen it returns
// the error.
package limit

import (
	"log/slog"
	"sync"
	"time"
)

// warner logs that a limit is not enforced while Redis is unreachable, at most every ten seconds.
type warner struct {
	log  *slog.Logger
	what string

	mu   sync.Mutex // guards last
	last time.Time
}

func newWarner(log *slog.Logger, what string) *warner {
	if log == nil {
		log = slog.Default()
	}
	return &warner{log: log, what: what}
}

func (w *warner) open(err error) {
	w.mu.Lock()
	quiet := time.Since(w.last) < 10*time.Second
	if !quiet {
		w.last = time.Now()
	}
	w.mu.Unlock()
	if !quiet {
		w.log.Warn("limit not enforced: Redis is unreachable", "limit", w.what, "err", err)
	}
}
