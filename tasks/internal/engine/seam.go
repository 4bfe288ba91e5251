package engine

import (
	"context"
	"errors"
	"runtime"
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
// the shape of its keys, and changes five things: a server that found its queues empty sleeps until
// it is woken rather than polling; it takes no more tasks than the worker may run, but as many at once
// as there are free slots; short tasks of ours start without asynq, which costs more than they do; tasks
// that are done are forgotten together; and what follows a task is written with a context of its own,
// because asynq hands its retries one that is cancelled already.
type seam struct {
	redis.UniversalClient
	store  *store.Store
	taken  func([]store.Popped)                          // told of tasks before they start
	back   func(string, store.QueueKeys, []store.Popped) // gives those back that do not
	run    func(fetched)                                 // runs one that asynq does not get, in a slot of its own
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
	mean   atomic.Int64 // how long a task has its slot, about, in ns
	plain  atomic.Bool  // asynq has scripts we do not know

	known map[[2]string]string // tasks of ours by what their messages have before and behind their ids; likewise

	mu    sync.Mutex // guards the fields below
	ahead []store.Popped
	from  *batch          // that ahead is of
	begun map[string]bool // tasks that were told to taken, and are not done
	own   map[string]held // those that asynq knows nothing of
	of    map[string]int  // running tasks of each queue that has a cap
}

// batch is what one round trip took out of a queue.
type batch struct {
	queue string
	keys  store.QueueKeys
	until time.Time // when what has not started is given back
	done  store.Finisher
}

// fetched is one of them.
type fetched struct {
	store.Popped
	*batch
}

func newSeam(s *store.Store, queues int, caps map[string]int, poll time.Duration) *seam {
	m := &seam{UniversalClient: s.Redis(), store: s, queues: queues, caps: caps, poll: poll,
		knownDequeue: dequeueSHA, knownDone: doneSHA,
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1), closed: make(chan struct{}),
		known: map[[2]string]string{}, begun: map[string]bool{}, own: map[string]held{}, of: map[string]int{}}
	m.mean.Store(int64(time.Second)) // nothing is known of the tasks
	return m
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

// done gives the slot of a task of a queue back that had it for took.
func (s *seam) done(queue string, took time.Duration) {
	s.learn(took)
	s.active.Add(-1)
	ring(s.room)
	if s.caps[queue] > 0 {
		s.mu.Lock()
		s.of[queue]--
		s.mu.Unlock()
		ring(s.wake) // the queue may have been passed over
	}
}

// learn counts how long a task had its slot.
func (s *seam) learn(took time.Duration) {
	mean := s.mean.Load()
	s.mean.Store(mean + (int64(took)-mean)/16) // one that another overwrites does not matter
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
	n := s.limit.Load() - s.active.Load()
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

// dequeue answers asynq's dequeue script once there is a slot for what it answers with.
func (s *seam) dequeue(ctx context.Context, sha string, keys []string, args []any) *redis.Cmd {
	queue := queueOf(keys[0])
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(redis.Nil)
	for !s.stopped() {
		left := s.left()
		full := s.active.Load() >= s.limit.Load()
		switch {
		case left > 0 && full:
			// They are for other workers, if there is no room soon.
			if !s.roomWithin(left) {
				s.mean.Store(int64(time.Second))
				s.giveBack()
			}
		case left > 0:
			next, own, ok := s.next()
			if !ok {
				continue // a slot was faster
			}
			s.empty = 0
			if own {
				s.run(next)
				continue
			}
			cmd.SetErr(nil)
			cmd.SetVal(next.Message)
			return cmd
		case full && s.depth(queue) == 0:
			s.roomWithin(s.poll)
		case sha != s.knownDequeue || len(args) != 2:
			return s.asItIs(ctx, sha, keys, args)
		default:
			n, err := s.take(ctx, queue, keys, args)
			switch {
			case err != nil:
				cmd.SetErr(err)
				if !redis.HasErrorPrefix(err, "NOSCRIPT") {
					// asynq would ask again at once.
					s.sleep(200 * time.Millisecond)
				}
				return cmd
			case n == 0 && !full:
				return s.nothing(cmd)
			}
		}
	}
	return cmd
}

// nothing is what asynq is told of an empty queue. After the last one it sleeps.
func (s *seam) nothing(cmd *redis.Cmd) *redis.Cmd {
	if s.empty++; s.empty >= s.queues {
		s.empty = 0
		s.sleep(s.poll)
	}
	return cmd
}

// roomWithin reports whether a slot may have become free before d has passed.
func (s *seam) roomWithin(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-s.room:
	case <-s.closed:
	case <-t.C:
		return false
	}
	return true
}

// plainPoll is how often queues are asked when nothing wakes a worker.
const plainPoll = 20 * time.Millisecond

// asItIs runs a script that is not the one this program knows.
func (s *seam) asItIs(ctx context.Context, sha string, keys []string, args []any) *redis.Cmd {
	if !s.plain.Swap(true) {
		s.poll = plainPoll
		s.failed("", errors.New("asynq is not the version this program is built for: the worker polls its queues, and is slower"))
	}
	cmd := s.UniversalClient.EvalSha(ctx, sha, keys, args...)
	switch err := cmd.Err(); {
	case err == nil:
		message, _ := cmd.Text()
		p := store.Popped{Message: message}
		_ = readable(&p) // asynq says what is wrong with it
		if !overdue(p.Deadline) {
			s.started(queueOf(keys[0]))
		}
		s.empty = 0
	case errors.Is(err, redis.Nil):
		s.nothing(cmd)
	case !redis.HasErrorPrefix(err, "NOSCRIPT"):
		s.sleep(200 * time.Millisecond)
	}
	return cmd
}

const (
	popMost   = 128 // tasks taken in one round trip
	aheadMost = 4   // times as many tasks as there are slots wait for one
	aheadFor  = 25 * time.Millisecond
	aheadLast = 4 * aheadFor // then what still waits is given back
)

// depth returns how many tasks of a queue are to be taken beyond those that can start now: as many as
// are expected to start within aheadFor. A queue that had fewer than were asked for has none to spare
// for one worker.
func (s *seam) depth(queue string) int64 {
	if !s.busy || s.caps[queue] > 0 {
		return 0
	}
	limit := s.limit.Load()
	return min(aheadMost*limit, limit*int64(aheadFor)/max(s.mean.Load(), 1))
}

// take takes tasks for the slots that are free now, and for those that soon will be. It returns how many.
func (s *seam) take(ctx context.Context, queue string, keys []string, args []any) (int, error) {
	prefix, _ := args[1].(string)
	qk := store.QueueKeys{Pending: keys[0], Paused: keys[1], Active: keys[2], Lease: keys[3], Prefix: prefix}
	// Slots that are about to be free come along.
	for i := 0; i < 4 && s.busy && s.active.Load() > 0; i++ {
		runtime.Gosched()
	}
	most := int(min(max(s.free(queue), 0)+s.depth(queue), popMost))
	if most == 0 {
		return 0, nil
	}
	var got []store.Popped
	for len(got) == 0 && !s.stopped() {
		var err error
		if got, err = s.store.Pop(ctx, queue, qk, args[0], most); err != nil {
			return 0, err
		}
		s.busy = len(got) == most
		if len(got) == 0 {
			break
		}
		// asynq tells nobody when it cannot start what it took, and the slot would stay taken.
		all := got
		got = got[:0]
		for _, p := range all {
			if err := s.read(&p); err != nil {
				s.bury(queue, p, err)
				continue
			}
			got = append(got, p)
		}
	}
	if len(got) == 0 {
		return 0, nil
	}
	s.taken(got)
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead, s.from = got, &batch{queue, qk, now.Add(aheadLast), store.NewFinisher(queue, qk, now)}
	for _, p := range got {
		s.begun[p.ID] = true
	}
	return len(got), nil
}

// read is readable, and knows tasks of ours by their messages, which are the same but for the id.
func (s *seam) read(p *store.Popped) error {
	head, tail, found := strings.Cut(p.Message, p.ID)
	if task, ok := s.known[[2]string{head, tail}]; ok && found {
		p.Task = task
		return nil
	}
	if err := readable(p); err != nil || p.Task == "" {
		return err
	}
	if len(s.known) >= maxMolds {
		clear(s.known)
	}
	s.known[[2]string{head, tail}] = p.Task
	return nil
}

// left returns how much longer what was taken ahead may be kept; 0 if there is nothing.
func (s *seam) left() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ahead) == 0 {
		return 0
	}
	return max(time.Until(s.from.until), 1)
}

// giveBack gives back what was taken ahead and has not started.
func (s *seam) giveBack() {
	s.mu.Lock()
	ahead, from := s.ahead, s.from
	s.ahead = nil
	for _, p := range ahead {
		delete(s.begun, p.ID)
	}
	s.mu.Unlock()
	if len(ahead) > 0 {
		s.back(from.queue, from.keys, ahead)
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
