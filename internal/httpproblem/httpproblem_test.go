package httpproblem

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// reply is an error that Redis replied with.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

var _ redis.Error = reply("")

// A Redis that rejects writes responds: the client is not told otherwise, and learns what to do.
func TestProblemsOfRedis(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"rejects writes: its memory or disk is full": fmt.Errorf("pause: %w", reply("OOM command not allowed when used memory > 'maxmemory'.")),
		"does not respond":                           redis.ErrClosed,
	} {
		if p := OfRedis(err); p == nil || p.Status != 503 || !strings.Contains(p.Detail, want) {
			t.Errorf("%v: got %v, want 503 with %q", err, p, want)
		}
	}
	if p := OfRedis(errors.New("no")); p != nil {
		t.Errorf("another error: got %v, want none", p)
	}
}
