package sim

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
)

// link is the connection to Redis that the histories of one goroutine of a test use, one after the other. It
// belongs to no bubble: its deadlines and its pool go by the machine's clock.
type link struct {
	rdb  *redis.Client
	todo chan []redis.Cmder // closed with the test
	done chan struct{}
}

// newLink connects to a redis-server that only tb uses. On miniredis a history takes a second, which is too slow.
func newLink(tb testing.TB) *link {
	tb.Helper()
	rdb, ok := redistest.Server(tb).Client().(*redis.Client)
	if !ok {
		tb.Fatal("the simulation needs a single Redis")
	}
	l := &link{rdb: rdb, todo: make(chan []redis.Cmder), done: make(chan struct{})}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for cmds := range l.todo {
			l.run(context.Background(), cmds)
			l.done <- struct{}{}
		}
	}()
	tb.Cleanup(func() {
		close(l.todo)
		<-stopped
	})
	return l
}

// do runs commands in one round trip. Each has its own reply and error then.
func (l *link) do(cmds ...redis.Cmder) {
	l.todo <- cmds
	<-l.done
}

func (l *link) run(ctx context.Context, cmds []redis.Cmder) {
	if len(cmds) == 1 {
		_ = l.rdb.Process(ctx, cmds[0])
		return
	}
	pipe := l.rdb.Pipeline()
	if cmds[0].Name() == "multi" { // the pipeline puts MULTI and EXEC around it again
		pipe, cmds = l.rdb.TxPipeline(), cmds[1:len(cmds)-1]
	}
	for _, c := range cmds {
		_ = pipe.Process(ctx, c)
	}
	_, _ = pipe.Exec(ctx) // each has its own error
}
