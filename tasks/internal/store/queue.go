package store

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/push.lua
	pushLua string
	//go:embed lua/pop.lua
	popLua string
	//go:embed lua/finish.lua
	finishLua string
	//go:embed lua/back.lua
	backLua string

	pushCmd   = NewScript(pushLua)
	finishCmd = NewScript(finishLua)
	backCmd   = NewScript(backLua)
	popCmd    = one(popLua)
	holdCmd   = one(holdLua)
)

// bellWaits is how many seconds a sleeping worker can be woken.
const bellWaits = 60

// Queued is a task for a queue of asynq, with the keys that asynq gives it.
type Queued struct {
	Queue   string
	Pending string // key of the queue
	Key     string // key of the task
	ID      string
	Message []byte // as asynq encodes it
	Head    bool   // it is next in line
}

// Push returns the call that puts a task into its queue; [Pushed] reads its answer.
func (s *Store) Push(q Queued) *Call {
	head := 0
	if q.Head {
		head = 1
	}
	return &Call{Script: pushCmd, Shared: []string{q.Pending, bellKey(q.Queue)}, Keys: []string{q.Key},
		Lead: wakeCall(q.Queue), Args: []any{q.ID, q.Message, head}}
}

func wakeCall(queue string) []any { return []any{BusChannel, "q " + queue, time.Now().UnixNano()} }

// Pushed reports whether the task is new to asynq.
func Pushed(c *Call) (bool, error) {
	if c.Err != nil {
		return false, fmt.Errorf("enqueue: %w", c.Err)
	}
	return toInt(c.Reply) == 1, nil
}

// QueueKeys are the keys that asynq's dequeue script works on, and the prefix of the keys of tasks.
type QueueKeys struct{ Pending, Paused, Active, Lease, Prefix string }

// Popped is a task that was taken out of a queue.
type Popped struct {
	ID       string
	Message  string
	Deadline int64  // that the message names, unix s; 0 if it names none or was not read
	Task     string // the name of a task of this release; empty for others
}

// Pop takes up to n tasks out of a queue; their leases end at until. When there are none, the next
// [Store.Push] wakes.
func (s *Store) Pop(ctx context.Context, queue string, k QueueKeys, until any, n int) ([]Popped, error) {
	c := &Call{Script: popCmd, Shared: []string{k.Pending, k.Paused, k.Active, k.Lease, bellKey(queue)},
		Args: []any{until, k.Prefix, n, bellWaits}}
	if err := s.scripts.Do(ctx, c); err != nil {
		return nil, err
	}
	if c.Err != nil {
		return nil, c.Err
	}
	list, _ := c.Reply.([]any)
	out := make([]Popped, 0, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		id, _ := list[i].(string)
		message, _ := list[i+1].(string)
		out = append(out, Popped{ID: id, Message: message})
	}
	return out, nil
}

// GiveBack puts tasks back that were popped.
func (s *Store) GiveBack(ctx context.Context, queue string, k QueueKeys, ids []string) error {
	calls := make([]*Call, len(ids))
	for i, id := range ids {
		calls[i] = &Call{Script: backCmd, Shared: []string{k.Pending, bellKey(queue), k.Active, k.Lease}, Keys: []string{k.Prefix + id},
			Lead: wakeCall(queue), Args: []any{id}}
	}
	if len(calls) == 0 {
		return nil
	}
	if err := s.scripts.Do(ctx, calls...); err != nil {
		return err
	}
	for _, c := range calls {
		if c.Err != nil {
			return fmt.Errorf("give back: %w", c.Err)
		}
	}
	return nil
}

// Finish returns the call that forgets a task that is done, from the keys and arguments of asynq's own.
func (s *Store) Finish(keys []string, args []any) *Call {
	return &Call{Script: finishCmd, Shared: []string{keys[0], keys[1], keys[3], keys[4]}, Keys: keys[2:3],
		Lead: args[1:3], Args: args[:1]}
}

// Finisher forgets tasks of a queue that are done at about now, without asynq's having asked for it.
type Finisher struct {
	prefix string
	shared []string
	lead   []any
}

// NewFinisher returns a Finisher for a queue.
func NewFinisher(queue string, k QueueKeys, now time.Time) Finisher {
	now = now.UTC()
	return Finisher{prefix: k.Prefix,
		shared: []string{k.Active, k.Lease, asynqKey(queue, "processed:"+now.Format(time.DateOnly)), asynqKey(queue, "processed")},
		lead:   []any{now.Add(asynqStatsFor).Unix(), int64(math.MaxInt64)}}
}

// Call returns the call that forgets a task.
func (f *Finisher) Call(id string) *Call {
	return &Call{Script: finishCmd, Shared: f.shared, Keys: []string{f.prefix + id}, Lead: f.lead, Args: []any{id}}
}

// asynqStatsFor is how long asynq keeps the counts of a day.
const asynqStatsFor = 90 * 24 * time.Hour

// Prolong moves the end of the leases of tasks that are still active to until.
func (s *Store) Prolong(ctx context.Context, lease string, ids []string, until time.Time) error {
	zs := make([]redis.Z, len(ids))
	for i, id := range ids {
		zs[i] = redis.Z{Score: float64(until.Unix()), Member: id}
	}
	if err := s.rdb.ZAddXX(ctx, lease, zs...).Err(); err != nil {
		return fmt.Errorf("prolong leases: %w", err)
	}
	return nil
}

// Bury takes a task out of a queue of asynq, in whatever state it is.
func (s *Store) Bury(ctx context.Context, queue, id string) error {
	pipe := s.rdb.TxPipeline()
	for _, list := range []string{"pending", "active"} {
		pipe.LRem(ctx, asynqKey(queue, list), 0, id)
	}
	for _, set := range []string{"lease", "scheduled", "retry", "archived", "completed"} {
		pipe.ZRem(ctx, asynqKey(queue, set), id)
	}
	pipe.Del(ctx, asynqKey(queue, "t:"+id))
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("delete task %s of queue %s: %w", id, queue, err)
	}
	return nil
}

// Register has asynq list queues.
func (s *Store) Register(ctx context.Context, queues []string) error {
	if len(queues) == 0 {
		return nil
	}
	if err := s.rdb.SAdd(ctx, asynqQueues, queues).Err(); err != nil {
		return fmt.Errorf("register queues: %w", err)
	}
	return nil
}

// errQueueName says that a queue has no name.
var errQueueName = errors.New("a queue needs a name")

// Pause stops workers from taking from a queue, as asynq does. Whoever pauses it again changes nothing; asynq's own
// refuses that, and what it tells of a queue before fails where the queue has never been used.
func (s *Store) Pause(ctx context.Context, queue string) error {
	if strings.TrimSpace(queue) == "" {
		return errQueueName
	}
	if err := s.rdb.SetNX(ctx, asynqKey(queue, "paused"), time.Now().Unix(), 0).Err(); err != nil {
		return fmt.Errorf("pause queue %s: %w", queue, err)
	}
	return nil
}

// Resume undoes Pause.
func (s *Store) Resume(ctx context.Context, queue string) error {
	if strings.TrimSpace(queue) == "" {
		return errQueueName
	}
	if err := s.rdb.Del(ctx, asynqKey(queue, "paused")).Err(); err != nil {
		return fmt.Errorf("resume queue %s: %w", queue, err)
	}
	return nil
}

// Paused reports whether workers take nothing from a queue.
func (s *Store) Paused(ctx context.Context, queue string) (bool, error) {
	n, err := s.rdb.Exists(ctx, asynqKey(queue, "paused")).Result()
	if err != nil {
		return false, fmt.Errorf("read queue %s: %w", queue, err)
	}
	return n == 1, nil
}

// Message returns the message of a task of asynq; nil if there is none.
func (s *Store) Message(ctx context.Context, queue, id string) ([]byte, error) {
	raw, err := s.rdb.HGet(ctx, asynqKey(queue, "t:"+id), "msg").Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read task %s of queue %s: %w", id, queue, err)
	}
	return raw, nil
}
