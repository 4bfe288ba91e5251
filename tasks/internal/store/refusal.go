package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Refused reports whether err means that Redis replied but currently rejects writes: its disk or its memory is full,
// it has become a replica, or it has too few replicas.
func Refused(err error) bool {
	return Full(err) || refusedAs(err, "READONLY") || refusedAs(err, "NOREPLICAS")
}

// Full reports whether err is a refusal that ends when there is room again, on the disk of Redis or in its memory.
func Full(err error) bool { return refusedAs(err, "MISCONF") || refusedAs(err, "OOM") }

// refusedAs reports whether err is a refusal of a kind: of a command, or of one inside a script, which
// Redis before 7 reports as "ERR Error running script (…): -OOM …".
func refusedAs(err error, kind string) bool {
	var reply redis.Error
	return errors.As(err, &reply) && (strings.HasPrefix(reply.Error(), kind+" ") || strings.Contains(reply.Error(), ": -"+kind+" "))
}

// Unavailable reports whether err means that Redis was unreachable, timed out or returned an error.
func Unavailable(err error) bool {
	for _, is := range []error{io.EOF, io.ErrUnexpectedEOF, redis.ErrClosed, redis.ErrPoolTimeout, redis.ErrPoolExhausted} {
		if errors.Is(err, is) {
			return true
		}
	}
	var reply redis.Error
	if errors.As(err, &reply) {
		return reply != redis.Nil
	}
	return errors.As(err, new(net.Error))
}

// Writable makes a write that changes nothing and needs no memory. Its error is the reason why Redis rejects writes.
func (s *Store) Writable(ctx context.Context) error {
	return s.Explain(ctx, s.rdb.ZRem(ctx, s.workersKey(), "").Err())
}

// Explain adds the cause and the remedy to the error of a rejected write. It returns other errors unchanged.
func (s *Store) Explain(ctx context.Context, err error) error {
	switch {
	case !Refused(err):
		return err
	case refusedAs(err, "MISCONF"):
		where := "its disk"
		if one, ok := s.rdb.(*redis.Client); ok { // any node of a cluster may reply
			if got, cerr := one.ConfigGet(ctx, "dir").Result(); cerr == nil && got["dir"] != "" {
				where = "the disk of its folder " + got["dir"]
			}
		}
		return fmt.Errorf("redis cannot write to %s; make room there, and it continues by itself: %w", where, err)
	case refusedAs(err, "OOM"):
		return fmt.Errorf("redis rejects writes because it has reached its maxmemory; raise it or delete data: %w", err)
	}
	return fmt.Errorf("redis takes no writes: %w", err)
}
