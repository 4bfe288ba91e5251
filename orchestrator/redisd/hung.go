package redisd

import (
	"context"
	"errors"
	"os"
	"time"
)

// maxSilentPings is the number of consecutive pings without a reply after which a child is restarted.
const maxSilentPings = 3

// restartHung kills the child if it accepts connections but does not reply; supervision restarts it with its data. restartHung
// blocks until ctx is done.
func (s *Server) restartHung(ctx context.Context) {
	tick := time.NewTicker(s.cfg.Interval)
	defer tick.Stop()
	silent, suspect := 0, 0 // pings without a reply, and the PID to which they were sent
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		pid, err := s.PID(), s.Ping(ctx)
		if ctx.Err() != nil {
			return
		}
		timedOut := errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
		if !timedOut || pid != suspect {
			silent, suspect = 0, pid
		}
		if !timedOut || pid == 0 {
			continue
		}
		silent++
		s.cfg.Logger.WarnContext(ctx, "redis-server does not reply", "pid", pid, "pings", silent, "timeout", s.cfg.PingTimeout)
		if silent == maxSilentPings {
			s.cfg.Logger.ErrorContext(ctx, "redis-server is hung, restarting it", "pid", pid)
			s.proc.Restart(pid)
			silent = 0
		}
	}
}
