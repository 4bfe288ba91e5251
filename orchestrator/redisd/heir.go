package redisd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"muster/tasks"
)

// How often a neighbour looks whether the one whose Redis it uses has gone, and
// how long it rests when it could not take its place.
const (
	heirEvery = 200 * time.Millisecond
	heirRests = 5 * time.Second
)

// awaitHeritage runs until ctx is done, or until the orchestrator whose Redis
// we use has gone, however that was. Then we run a Redis in its place: on the
// same data, and at the same port, so that all who are connected find back.
func (s *Server) awaitHeritage(ctx context.Context) {
	tick := time.NewTicker(heirEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		l, err := tryLock(s.cfg.lockFile())
		if errors.Is(err, errLocked) {
			continue
		}
		if errors.Is(err, errors.ErrUnsupported) {
			return // nobody is known to have the folder
		}
		if err == nil {
			err = s.inherit(ctx, l)
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		s.cfg.Logger.Error("the orchestrator whose Redis we use has gone, and ours does not start", "err", err)
		tick.Reset(heirRests)
	}
}

// inherit runs a Redis in the place of the one that has gone. It has the lock.
func (s *Server) inherit(ctx context.Context, l *lock) error {
	heir := &Server{cfg: s.cfg, id: rand.Text(), lock: l, done: make(chan struct{})}
	// Clients are at the door: there is no time to move from a built-in Redis to a redis-server.
	heir.cfg.Mode = s.neighbour
	err := func() error {
		o, err := tasks.ParseURL(s.url)
		if err != nil {
			return err
		}
		_, port, err := net.SplitHostPort(o.Addrs[0])
		if err != nil {
			return fmt.Errorf("port of the Redis that has gone: %w", err)
		}
		if heir.cfg.Port, err = strconv.Atoi(port); err != nil {
			return err
		}
		if o.Password == "" {
			return errors.New("it was run by an older version, without a password; start this one again, and all that use that Redis")
		}
		if err := heir.clearData(ctx); err != nil {
			return err
		}
		// The one that clients know, whatever has happened to the file.
		if err := heir.cfg.writePassword(o.Password); err != nil {
			return err
		}
		if err := heir.startOwn(ctx); err != nil {
			return err
		}
		return heir.publish()
	}()
	if err != nil {
		_ = heir.Stop(context.WithoutCancel(ctx))
		return err
	}
	s.heir.Store(heir)
	s.cfg.Logger.Info("the orchestrator whose Redis we used has gone; we run it now", "mode", heir.mode)
	return nil
}

// now is the Server that tells how things are: s, or what it has inherited.
func (s *Server) now() *Server {
	if heir := s.heir.Load(); heir != nil {
		return heir
	}
	return s
}

func (c Config) lockFile() string { return filepath.Join(c.redisDir(), "lock") }
