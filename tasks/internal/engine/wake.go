package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"muster/tasks/internal/store"
)

// Wake is a wake-task.
type Wake = store.Wake

// wake sends wake-tasks. If that fails, workers find the ready nodes later.
func (e *env) wake(ctx context.Context, ks []Wake) {
	for _, k := range ks {
		if err := e.waker(ctx, k); err != nil {
			e.log.WarnContext(ctx, "wake-task was not sent; workers will find the ready nodes", "queue", k.Queue, "error", err)
		}
	}
}

// wakeType is the type of wake-tasks in asynq.
const wakeType = "muster:work"

// With these asynq never lets a wake-task time out, and never archives it.
const (
	neverTimeout = 10 * 365 * 24 * time.Hour
	manyRetries  = 1 << 30
)

// waker sends wake-tasks with asynq.
type waker struct {
	store  *store.Store
	client *asynq.Client
}

func newWaker(s *store.Store) *waker {
	return &waker{s, asynq.NewClientFromRedisClient(s.Redis())}
}

// send sends a wake-task and wakes sleeping workers. It succeeds if asynq already has the wake-task.
func (w *waker) send(ctx context.Context, k Wake) error {
	t := asynq.NewTask(wakeType, []byte(strconv.Itoa(k.Shard)+" "+k.Gen))
	_, err := w.client.EnqueueContext(ctx, t, asynq.TaskID(wakeID(k)), asynq.Queue(k.Queue), asynq.MaxRetry(manyRetries), asynq.Timeout(neverTimeout))
	if err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
		return fmt.Errorf("enqueue a wake-task: %w", err)
	}
	// asynq's client lists a queue only once, although it may have been deleted since.
	return w.store.Queues.Announce(ctx, k.Queue)
}

func wakeID(k Wake) string { return "{" + strconv.Itoa(k.Shard) + "}:" + k.Queue + ":" + k.Gen }

// isWakeID reports whether id is the ID of a wake-task of a queue.
func isWakeID(queue, id string) bool {
	text, gen, ok := strings.Cut(strings.TrimPrefix(id, "{"), "}:"+queue+":")
	shard, err := strconv.Atoi(text)
	return ok && err == nil && id == wakeID(Wake{Shard: shard, Queue: queue, Gen: gen})
}

// parseWake reads the wake-task of a queue.
func parseWake(queue string, payload []byte) (Wake, error) {
	shard, gen, _ := strings.Cut(string(payload), " ")
	n, err := strconv.Atoi(shard)
	if err != nil || n < 0 || gen == "" {
		return Wake{}, fmt.Errorf("payload of wake-task is %.40q, expected shard and generation", payload)
	}
	return Wake{Shard: n, Queue: queue, Gen: gen}, nil
}

// look finds ready nodes that no worker takes, and sends their wake-tasks, again if they were asked for longer than
// patience ago. It returns the pools of the queues with ready nodes.
func (e *env) look(ctx context.Context, patience time.Duration, queues []string) ([]store.Pool, error) {
	found, err := e.store.Queues.Look(ctx, patience, queues)
	if err != nil {
		return nil, err
	}
	e.wake(ctx, found.Wants)
	var errs []error
	for _, k := range found.Overdue {
		errs = append(errs, e.wakeAgain(ctx, k))
	}
	return found.Pools, errors.Join(errs...)
}

// wakeAgain deals with a wake-task that was asked for and has not come. If it is pending, workers of its queue are
// woken. If it was lost, or an operator archived it, or a dead worker took it, another one is sent.
func (e *env) wakeAgain(ctx context.Context, k Wake) error {
	info, err := asynq.NewInspectorFromRedisClient(e.store.Redis()).GetTaskInfo(k.Queue, wakeID(k))
	switch {
	case !e.store.HasLists() && (errors.Is(err, asynq.ErrQueueNotFound) || errors.Is(err, asynq.ErrTaskNotFound)):
		return e.waker(ctx, k)
	case err == nil && info.State == asynq.TaskStatePending:
		return e.store.Tell(ctx, "q "+k.Queue)
	}
	wants, err := e.store.Queues.Bump(ctx, k)
	if err != nil {
		return err
	}
	e.wake(ctx, wants)
	return nil
}

// unwake deletes wake-tasks that are not needed any more. One that stays does no harm.
func (e *env) unwake(ks []Wake) {
	in := asynq.NewInspectorFromRedisClient(e.store.Redis())
	for _, k := range ks {
		if err := in.DeleteTask(k.Queue, wakeID(k)); err != nil && !errors.Is(err, asynq.ErrTaskNotFound) && !errors.Is(err, asynq.ErrQueueNotFound) {
			e.log.Debug("wake-task was not deleted", "queue", k.Queue, "error", err)
		}
	}
}
