package api

import (
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// mostConnections is how many connections a listener has at a time, if the process may open twice as many files.
const mostConnections = 4096

// connections bounds the connections of a server, so that clients cannot use up the descriptors of the process. A new
// connection beyond the limit replaces the one that has waited longest for a request.
type connections struct {
	most   int
	logger *slog.Logger

	mu      sync.Mutex
	waiting map[net.Conn]time.Time // for a request, since when; zero: it has one
	warned  time.Time
}

func newConnections(most int, logger *slog.Logger) *connections {
	return &connections{most: most, logger: logger, waiting: map[net.Conn]time.Time{}}
}

// track is for http.Server.ConnState.
func (c *connections) track(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	switch state {
	case http.StateNew:
		if len(c.waiting) >= c.most {
			c.replace(conn, now)
		}
		c.waiting[conn] = now
	case http.StateIdle:
		c.waiting[conn] = now
	case http.StateActive:
		c.waiting[conn] = time.Time{}
	case http.StateClosed, http.StateHijacked:
		delete(c.waiting, conn)
	}
}

// replace closes the connection that has waited longest, or the new one if none waits.
func (c *connections) replace(oldest net.Conn, since time.Time) {
	for conn, at := range c.waiting {
		if !at.IsZero() && at.Before(since) {
			oldest, since = conn, at
		}
	}
	_ = oldest.Close()
	delete(c.waiting, oldest)
	if now := time.Now(); now.Sub(c.warned) > time.Minute {
		c.warned = now
		c.logger.Warn("too many connections: closing those that have waited longest for a request", "limit", c.most, "address", oldest.RemoteAddr())
	}
}
