package redistest

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Example is like [Mini] for an Example function, which has no testing.TB. Call end at the end of the example. It
// panics where a test would fail.
func Example() (rdb redis.UniversalClient, end func()) {
	e := &example{}
	return Mini(e), e.end
}

// example implements the methods of testing.TB that Mini calls.
type example struct {
	testing.TB
	ends []func()
}

func (e *example) Helper()                   {}
func (e *example) Name() string              { return "Example" }
func (e *example) Cleanup(f func())          { e.ends = append(e.ends, f) }
func (e *example) Context() context.Context  { return context.Background() }
func (e *example) Fatal(args ...any)         { panic(fmt.Sprint(args...)) }
func (e *example) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }

func (e *example) end() {
	for i := len(e.ends) - 1; i >= 0; i-- {
		e.ends[i]()
	}
}
