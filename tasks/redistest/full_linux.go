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

// FillDisk makes writes of the server to its append-only file fail, as on a full disk, until [Instance.FreeDisk]. It
// returns when the server refuses writes. The server must have been started with appendonly yes.
func (s *Instance) FillDisk() {
	s.tb.Helper()
	if err := s.limitFiles(1); err != nil {
		s.tb.Fatalf("bound the files of the redis-server: %v", err)
	}
	rdb := s.Client()
	// The server writes to the file after it has answered, so only the next command is refused.
	for limit := time.Now().Add(startTimeout); ; {
		err := rdb.Set(s.tb.Context(), "redistest:full", "", time.Millisecond).Err()
		if redis.HasErrorPrefix(err, "MISCONF") {
			return
		}
		if time.Now().After(limit) {
			s.tb.Fatalf("the redis-server takes writes although it cannot write to its file: %v", err)
		}
	}
}

// FreeDisk ends FillDisk.
func (s *Instance) FreeDisk() {
	s.tb.Helper()
	if err := s.limitFiles(math.MaxUint64); err != nil {
		s.tb.Fatalf("free the files of the redis-server: %v", err)
	}
}

func (s *Instance) limitFiles(bytes uint64) error {
	var was unix.Rlimit
	if err := unix.Prlimit(s.PID(), unix.RLIMIT_FSIZE, nil, &was); err != nil {
		return fmt.Errorf("read the limit: %w", err)
	}
	to := unix.Rlimit{Cur: min(bytes, was.Max), Max: was.Max}
	return unix.Prlimit(s.PID(), unix.RLIMIT_FSIZE, &to, nil)
}

// A server that meets the limit gets an error, as from a disk that is full, and not a deadly signal: what is
// ignored here is ignored by what is started here.
func init() { signal.Ignore(syscall.SIGXFSZ) }
