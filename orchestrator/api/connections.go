package api

import (
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// mostConnections limits the open connections of a listener, if the process may open twice as many files.
const mostConnections = 4096

// connections limits the connections of a server, so that clients cannot use up the file descriptors of the process.
// Beyond the limit, a new connection replaces an idle one: the connection that has been idle longest of the address
// with the most idle connections.
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

// replace closes an idle connection of the address with the most of them, or the new connection if none is idle.
func (c *connections) replace(oldest net.Conn, since time.Time) {
	waiting := map[string]int{}
	for conn, at := range c.waiting {
		if !at.IsZero() {
			waiting[addressOf(conn)]++
		}
	}
	most := 0
	for conn, at := range c.waiting {
		n := waiting[addressOf(conn)]
		if !at.IsZero() && (n > most || n == most && at.Before(since)) {
			oldest, since, most = conn, at, n
		}
	}
	_ = oldest.Close()
	delete(c.waiting, oldest)
	if now := time.Now(); now.Sub(c.warned) > time.Minute {
		c.warned = now
		c.logger.Warn("too many connections: closing the connections that have been idle longest", "limit", c.most, "address", oldest.RemoteAddr())
	}
}

// addressOf returns the address of the client of a connection, without its port.
func addressOf(conn net.Conn) string {
	host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err != nil {
		return conn.RemoteAddr().String()
	}
	return host
}
