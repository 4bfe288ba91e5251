package engine

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/internal/store"
)

// The scripts of asynq v0.26.0 that the seam does the work of. Should asynq come with others, they run
// as they are, and the worker polls.
const (
	dequeueSHA = "a8153319360adc71cdc370107f8ab9786f204765"
	doneSHA    = "1241eaa1c73409baaf1fea0c08d203a4911bda15"
)

// seam is the connection that asynq's server works on. It sees every script asynq runs, knows it by
// the shape of its keys, and changes four things: a server that found its queues empty sleeps until
// it is woken rather than polling; it takes no more tasks than the worker may run, but as many at once
// as there are free slots; tasks that are done are forgotten together; and what follows a task is
// written with a context of its own, because asynq hands its retries one that is cancelled already.
type seam struct {
	redis.UniversalClient
	store  *store.Store
	taken  func([]store.Popped)                          // told of tasks before asynq gets them
	back   func(string, store.QueueKeys, []store.Popped) // gives those back that asynq does not get
	failed func(string, error)                           // told what goes wrong behind asynq's back
	bury   func(string, store.Popped, error)             // takes what is no task out of a queue
	caps   map[string]int                                // most tasks of a queue at once
	queues int                                           // how many queues one round asks
	poll   time.Duration                                 // longest sleep
	wake   chan struct{}                                 // has a value when there may be work
	room   chan struct{}                                 // has a value when a slot may be free
	closed chan struct{}                                 // closed when the server must not take any more
	once   sync.Once

	knownDequeue, knownDone string // hashes of asynq's scripts; others run as they are

	empty  int  // queues found empty in this round; only asynq's processor touches it
	busy   bool // the queue had as much as was asked for; likewise
	limit  atomic.Int64
	active atomic.Int64
	plain  atomic.Bool // asynq has scripts we do not know

	mu    sync.Mutex // guards the fields below
	ahead []store.Popped
	queue string // that ahead was taken from
	keys  store.QueueKeys
	begun map[string]bool // tasks that were told to taken, and are not done
	of    map[string]int  // running tasks of each queue that has a cap
}

func newSeam(s *store.Store, queues int, caps map[string]int, poll time.Duration) *seam {
	return &seam{UniversalClient: s.Redis(), store: s, queues: queues, caps: caps, poll: poll,
		knownDequeue: dequeueSHA, knownDone: doneSHA,
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1), closed: make(chan struct{}),
		begun: map[string]bool{}, of: map[string]int{}}
}

type scriptKind int

const (
	otherScript scriptKind = iota
	dequeueScript
	finishScript // done, complete, retry, archive, requeue
)

// kindOf knows asynq's scripts by their keys.
func kindOf(keys []string) scriptKind {
	switch {
	case len(keys) == 4 && strings.HasSuffix(keys[0], ":pending") && strings.HasSuffix(keys[1], ":paused"):
		return dequeueScript
	case len(keys) >= 4 && strings.HasSuffix(keys[0], ":active") && strings.HasSuffix(keys[1], ":lease"),
		len(keys) >= 4 && strings.Contains(keys[0], "}:t:") && strings.HasSuffix(keys[1], ":active"):
		return finishScript
	}
	return otherScript
}

func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// stop lets the server find nothing from now on.
func (s *seam) stop() { s.once.Do(func() { close(s.closed) }) }

func (s *seam) stopped() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

// done gives the slot of a task of a queue back.
func (s *seam) done(queue string) {
	s.active.Add(-1)
	ring(s.room)
	if s.caps[queue] > 0 {
		s.mu.Lock()
		s.of[queue]--
		s.mu.Unlock()
		ring(s.wake) // the queue may have been passed over
	}
}

// started counts a task of a queue.
func (s *seam) started(queue string) {
	s.active.Add(1)
	if s.caps[queue] > 0 {
		s.mu.Lock()
		s.of[queue]++
		s.mu.Unlock()
	}
}

// free returns how many tasks of a queue can start now.
func (s *seam) free(queue string) int64 {
	n := min(s.limit.Load()-s.active.Load(), popMost)
	if most := s.caps[queue]; most > 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		n = min(n, int64(most-s.of[queue]))
	}
	return n
}

// queueOf returns the queue that a key of asynq belongs to.
func queueOf(key string) string {
	_, queue, _ := strings.Cut(key, "{")
	queue, _, _ = strings.Cut(queue, "}")
	return queue
}

// EvalSha implements redis.Scripter.
func (s *seam) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	switch kindOf(keys) {
	case dequeueScript:
		return s.dequeue(ctx, sha, keys, args)
	case finishScript:
		if sha == s.knownDone && len(keys) == 5 && len(args) == 3 && s.forget(keys, args) {
			cmd := redis.NewCmd(ctx)
			cmd.SetVal("OK")
			return cmd
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return s.UniversalClient.EvalSha(ctx, sha, keys, args...)
	}
	return s.UniversalClient.EvalSha(ctx, sha, keys, args...)
}

// forget has a task of ours forgotten soon. Nothing depends on when: a task that comes back finds that
// its node is done.
func (s *seam) forget(keys []string, args []any) bool {
	id, _ := args[0].(string)
	s.mu.Lock()
	ours := s.begun[id]
	delete(s.begun, id)
	s.mu.Unlock()
	if !ours {
		return false
	}
	c := s.store.Finish(keys, args)
	c.Failed = func(err error) { s.failed(id, err) }
	s.store.Scripts().Post(c)
	return true
}

// Eval implements redis.Scripter: the way asynq falls back to when Redis has lost its scripts.
func (s *seam) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	if kindOf(keys) == finishScript {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return s.UniversalClient.Eval(ctx, script, keys, args...)
	}
	cmd := s.UniversalClient.Eval(ctx, script, keys, args...)
	if kindOf(keys) == dequeueScript && cmd.Err() == nil {
		s.started(queueOf(keys[0]))
	}
	return cmd
}

func (s *seam) dequeue(ctx context.Context, sha string, keys []string, args []any) *redis.Cmd {
	nothing := func() *redis.Cmd {
		cmd := redis.NewCmd(ctx)
		cmd.SetErr(redis.Nil)
		return cmd
	}
	for s.active.Load() >= s.limit.Load() {
		s.giveBack() // there was room for them a moment ago
		if s.stopped() {
			return nothing()
		}
		select {
		case <-s.room:
		case <-s.closed:
		case <-time.After(s.poll):
		}
	}
	if s.stopped() {
		return nothing()
	}
	cmd, queue := s.take(ctx, sha, keys, args)
	switch err := cmd.Err(); {
	case err == nil:
		if message, _ := cmd.Text(); !overdue(message) {
			s.started(queue)
		}
		s.empty = 0
	case errors.Is(err, redis.Nil):
		if s.empty++; s.empty >= s.queues {
			s.empty = 0
			s.sleep(s.poll)
		}
	case !redis.HasErrorPrefix(err, "NOSCRIPT"):
		// asynq would ask again at once.
		s.sleep(200 * time.Millisecond)
	}
	return cmd
}

// plainPoll is how often queues are asked when nothing wakes a worker.
const plainPoll = 20 * time.Millisecond

// take answers asynq's dequeue script from what was taken ahead, or takes as many tasks as can start
// now. It returns the queue that the answer is from.
func (s *seam) take(ctx context.Context, sha string, keys []string, args []any) (*redis.Cmd, string) {
	queue := queueOf(keys[0])
	if sha != s.knownDequeue || len(args) != 2 {
		if !s.plain.Swap(true) {
			s.poll = plainPoll
			s.failed("", errors.New("asynq is not the version this program is built for: the worker polls its queues, and is slower"))
		}
		return s.UniversalClient.EvalSha(ctx, sha, keys, args...), queue
	}
	cmd := redis.NewCmd(ctx)
	if next, from, ok := s.next(); ok {
		cmd.SetVal(next.Message)
		return cmd, from
	}
	prefix, _ := args[1].(string)
	qk := store.QueueKeys{Pending: keys[0], Paused: keys[1], Active: keys[2], Lease: keys[3], Prefix: prefix}
	// Slots that are about to be free come along.
	for i := 0; i < 4 && s.busy && s.active.Load() > 0; i++ {
		runtime.Gosched()
	}
	free := s.free(queue)
	if free <= 0 {
		cmd.SetErr(redis.Nil)
		return cmd, queue
	}
	var got []store.Popped
	for len(got) == 0 && !s.stopped() {
		var err error
		if got, err = s.store.Pop(ctx, queue, qk, args[0], int(free)); err != nil {
			cmd.SetErr(err)
			return cmd, queue
		}
		s.busy = len(got) == int(free)
		if len(got) == 0 {
			break
		}
		// asynq tells nobody when it cannot start what it took, and the slot would stay taken.
		got = slices.DeleteFunc(got, func(p store.Popped) bool {
			err := readable(p)
			if err != nil {
				s.bury(queue, p, err)
			}
			return err != nil
		})
	}
	if len(got) == 0 {
		cmd.SetErr(redis.Nil)
		return cmd, queue
	}
	s.mu.Lock()
	s.ahead, s.queue, s.keys = got[1:], queue, qk
	for _, p := range got {
		s.begun[p.ID] = true
	}
	s.mu.Unlock()
	s.taken(got)
	cmd.SetVal(got[0].Message)
	return cmd, queue
}

// popMost bounds what is taken in one round trip.
const popMost = 128

func (s *seam) next() (p store.Popped, queue string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ahead) == 0 {
		return p, "", false
	}
	p = s.ahead[0]
	s.ahead = s.ahead[1:]
	return p, s.queue, true
}

// giveBack gives back what was taken ahead and has not started.
func (s *seam) giveBack() {
	s.mu.Lock()
	ahead, queue, keys := s.ahead, s.queue, s.keys
	s.ahead = nil
	for _, p := range ahead {
		delete(s.begun, p.ID)
	}
	s.mu.Unlock()
	if len(ahead) > 0 {
		s.back(queue, keys, ahead)
	}
}

func (s *seam) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-s.wake:
	case <-s.closed:
	case <-t.C:
	}
}
