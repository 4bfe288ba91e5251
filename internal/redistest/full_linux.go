package redistest

import (
	"fmt"
	"math"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"
)

// FillDisk makes writes to the append-only file fail, as on a full disk, until [Instance.FreeDisk]. It returns when
// the server rejects writes. The server must have been started with appendonly yes.
func (s *Instance) FillDisk() {
	s.tb.Helper()
	if err := s.limitFiles(1); err != nil {
		s.tb.Fatalf("limit file size of redis-server: %v", err)
	}
	rdb := s.Client()
	// The server writes to the file after sending the reply, so the next command is rejected.
	for limit := time.Now().Add(startTimeout); ; {
		err := rdb.Set(s.tb.Context(), "redistest:full", "", time.Millisecond).Err()
		if redis.HasErrorPrefix(err, "MISCONF") {
			return
		}
		if time.Now().After(limit) {
			s.tb.Fatalf("redis-server accepts writes despite the file size limit: %v", err)
		}
	}
}

// FreeDisk undoes FillDisk.
func (s *Instance) FreeDisk() {
	s.tb.Helper()
	if err := s.limitFiles(math.MaxUint64); err != nil {
		s.tb.Fatalf("remove file size limit of redis-server: %v", err)
	}
}

func (s *Instance) limitFiles(bytes uint64) error {
	var was unix.Rlimit
	if err := unix.Prlimit(s.PID(), unix.RLIMIT_FSIZE, nil, &was); err != nil {
		return fmt.Errorf("read limit: %w", err)
	}
	to := unix.Rlimit{Cur: min(bytes, was.Max), Max: was.Max}
	return unix.Prlimit(s.PID(), unix.RLIMIT_FSIZE, &to, nil)
}

// At the limit the server must receive a write error, as on a full disk, and not be killed by a signal. Children
// inherit ignored signals.
func init() { signal.Ignore(syscall.SIGXFSZ) }
