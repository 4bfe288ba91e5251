package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/tasktype"
)

// Announce adds a queue to the list of queues, and notifies all workers that it has work.
func (s Queues) Announce(ctx context.Context, queue string) error {
	pipe := s.rdb.Pipeline()
	pipe.SAdd(ctx, queuesKey, queue)
	pipe.Publish(ctx, BusChannel, "q "+queue)
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("announce queue %s: %w", queue, err)
	}
	return nil
}

// Forget deletes the data of a queue that has no ready node and was not used for a time. It reports whether no shard
// has data of it.
func (s Queues) Forget(ctx context.Context, queue string, unused time.Duration) (bool, error) {
	res, err := s.callEach(ctx, "forget", queue, unused.Milliseconds())
	if err != nil {
		return false, fmt.Errorf("forget queue %s: %w", queue, err)
	}
	return !slices.ContainsFunc(res, func(r []any) bool { return toInt(r[0]) == 0 }), nil
}

// UsedByAsynq reports whether a queue is paused, has groups of asynq's own tasks, or processed a task since the day before
// now minus unused.
func (s Queues) UsedByAsynq(ctx context.Context, queue string, now time.Time, unused time.Duration) (bool, error) {
	keys := []string{pausedKey(queue), groupsKey(queue)}
	for day := now.UTC().Add(-unused).Truncate(24 * time.Hour); !day.After(now); day = day.Add(24 * time.Hour) {
		keys = append(keys, processedKey(queue)+":"+day.Format(time.DateOnly))
	}
	n, err := s.rdb.Exists(ctx, keys...).Result()
	if err != nil {
		return false, fmt.Errorf("read queue %s: %w", queue, err)
	}
	return n > 0, nil
}

// DropTotals deletes asynq's counts of a queue that was deleted.
func (s Queues) DropTotals(ctx context.Context, queue string) error {
	if err := s.rdb.Del(ctx, processedKey(queue), failedKey(queue)).Err(); err != nil {
		return fmt.Errorf("forget queue %s: %w", queue, err)
	}
	return nil
}

// Paused reports whether a queue is paused.
func (s Queues) Paused(ctx context.Context, queue string) (bool, error) {
	n, err := s.rdb.Exists(ctx, pausedKey(queue)).Result()
	if err != nil {
		return false, fmt.Errorf("read queue %s: %w", queue, err)
	}
	return n == 1, nil
}

// checkName returns an error if a queue has no name.
func checkName(queue string) error {
	if strings.TrimSpace(queue) == "" {
		return errors.New("a queue needs a name")
	}
	return nil
}

// Pause stops workers from taking from a queue, as asynq does. Unlike in asynq, pausing a paused queue succeeds.
func (s Queues) Pause(ctx context.Context, queue string) error {
	if err := checkName(queue); err != nil {
		return err
	}
	if err := s.rdb.SetNX(ctx, pausedKey(queue), time.Now().Unix(), 0).Err(); err != nil {
		return fmt.Errorf("pause queue %s: %w", queue, err)
	}
	return nil
}

// Resume undoes Pause.
func (s Queues) Resume(ctx context.Context, queue string) error {
	if err := checkName(queue); err != nil {
		return err
	}
	if err := s.rdb.Del(ctx, pausedKey(queue)).Err(); err != nil {
		return fmt.Errorf("resume queue %s: %w", queue, err)
	}
	return nil
}

// Depth is how many nodes of a queue are ready, and since when none of them was taken; zero if none are ready.
type Depth struct {
	Ready int64
	Since time.Time
}

// Depths returns the depths of queues.
func (s Queues) Depths(ctx context.Context, queues []string) (map[string]Depth, error) {
	all, err := s.withPools(ctx, queues)
	if err != nil {
		return nil, err
	}
	pipe := s.rdb.Pipeline()
	cmds := map[string][]*redis.SliceCmd{}
	for _, q := range queues {
		for shard, lists := range all[q] {
			for _, list := range lists {
				cmds[q] = append(cmds[q], pipe.HMGet(ctx, wakeKey(shard, list), "ready:n", "ready:h", "taken", "pending"))
			}
		}
	}
	if len(cmds) > 0 {
		if _, err := pipe.Exec(ctx); err != nil {
			return nil, fmt.Errorf("read depths of queues: %w", err)
		}
	}
	out := map[string]Depth{}
	for q, list := range cmds {
		var d Depth
		for _, c := range list {
			v := c.Val()
			ready := max(0, toInt(v[0])) + max(0, toInt(v[1]))
			d.Ready += ready
			since := max(toInt(v[2]), toInt(v[3])) // while the queue was empty nothing was taken either
			if at := time.UnixMilli(since); ready > 0 && since > 0 && (d.Since.IsZero() || at.Before(d.Since)) {
				d.Since = at
			}
		}
		out[q] = d
	}
	return out, nil
}

// Foreign has the numbers of asynq's own tasks in a queue, without wake-tasks. asynq's inspector would also measure
// the memory of the queue each time, with some 30 commands.
type Foreign struct {
	Pending, Active, Archived int64
	Since                     time.Time // time since which the oldest pending task is pending; zero if there is none
	Paused                    bool
}

// ForeignDue counts asynq's own tasks that wait for their time, by queue.
func (s Queues) ForeignDue(ctx context.Context, queues []string) (map[string]tasktype.DueCount, error) {
	pipe := s.rdb.Pipeline()
	scheduled, retry := make([]*redis.IntCmd, len(queues)), make([]*redis.IntCmd, len(queues))
	for i, q := range queues {
		scheduled[i], retry[i] = pipe.ZCard(ctx, scheduledKey(q)), pipe.ZCard(ctx, retryKey(q))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("read queues: %w", err)
	}
	out := map[string]tasktype.DueCount{}
	for i, q := range queues {
		out[q] = tasktype.DueCount{Scheduled: scheduled[i].Val(), Retry: retry[i].Val()}
	}
	return out, nil
}

// mostWakes is how many ids of each list of asynq are looked at for wake-tasks.
const mostWakes = 1000

// Foreign returns the numbers of asynq's own tasks in queues. isWake reports whether an ID belongs to a wake-task of
// a queue.
func (s Queues) Foreign(ctx context.Context, queues []string, isWake func(queue, id string) bool) (map[string]Foreign, error) {
	type list struct {
		length *redis.IntCmd
		ids    *redis.StringSliceCmd
	}
	type read struct {
		paused, archived *redis.IntCmd
		pending, active  list
	}
	pipe := s.rdb.Pipeline()
	ask := func(key string) list { return list{pipe.LLen(ctx, key), pipe.LRange(ctx, key, -mostWakes, -1)} }
	reads := make([]read, len(queues))
	for i, q := range queues {
		reads[i] = read{pipe.Exists(ctx, pausedKey(q)), pipe.ZCard(ctx, archivedKey(q)), ask(pendingKey(q)), ask(activeKey(q))}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("read queues: %w", err)
	}
	out := map[string]Foreign{}
	for i, q := range queues {
		others := func(l list) (ids []string, n int64) {
			ids = slices.DeleteFunc(slices.Clone(l.ids.Val()), func(id string) bool { return isWake(q, id) })
			return ids, max(0, l.length.Val()-int64(len(l.ids.Val())-len(ids)))
		}
		f := Foreign{Paused: reads[i].paused.Val() == 1, Archived: reads[i].archived.Val()}
		_, f.Active = others(reads[i].active)
		var waits []string
		if waits, f.Pending = others(reads[i].pending); len(waits) > 0 {
			since, err := s.rdb.HGet(ctx, taskKey(q, waits[len(waits)-1]), "pending_since").Int64()
			if err != nil && !errors.Is(err, redis.Nil) { // it has begun meanwhile
				return nil, fmt.Errorf("read queue %s: %w", q, err)
			}
			if since > 0 {
				f.Since = time.Unix(0, since)
			}
		}
		out[q] = f
	}
	return out, nil
}

// Ready returns up to limit ready elements of a queue, high priority first.
func (s Queues) Ready(ctx context.Context, queue string, limit int) ([]Element, error) {
	all, err := s.withPools(ctx, []string{queue})
	if err != nil {
		return nil, err
	}
	var out []Element
	for shard, lists := range all[queue] {
		var lanes []string
		for priority := 1; priority >= 0; priority-- {
			for _, list := range lists {
				lanes = append(lanes, Lane(list, priority))
			}
		}
		for _, lane := range lanes {
			keys, err := s.rdb.LRange(ctx, ringKey(shard, lane), 0, int64(limit-1)).Result()
			if err != nil {
				return nil, fmt.Errorf("list ready nodes: %w", err)
			}
			for _, key := range keys {
				texts := []string{key}
				if !strings.Contains(key, "/") { // it has a list
					texts, err = s.rdb.LRange(ctx, readyKey(shard, lane, key), 0, int64(limit-1)).Result()
					if err != nil {
						return nil, fmt.Errorf("list ready nodes: %w", err)
					}
				}
				for _, t := range texts {
					if el, err := ParseElement(shard, t); err == nil && len(out) < limit {
						out = append(out, el)
					}
				}
				if len(out) >= limit {
					return out, nil
				}
			}
		}
	}
	return out, nil
}

// Looked is the result of [Queues.Look].
type Looked struct {
	Wants   []Wake // wake-tasks to send
	Overdue []Wake // wake-tasks that were asked for long ago and have not come
	Pools   []Pool // with ready nodes
}

// Pool is a pool of a queue in a shard.
type Pool struct {
	Wake Wake // without a generation
	Idle bool // nothing was taken from it for longer than the patience of [Queues.Look]
}

// Look finds queues with ready nodes from which nothing was taken for longer than patience.
func (s Queues) Look(ctx context.Context, patience time.Duration, queues []string) (Looked, error) {
	var out Looked
	args := []any{patience.Milliseconds()}
	for _, q := range queues {
		args = append(args, q)
	}
	replies, err := s.callEach(ctx, "look", args...)
	if err != nil {
		return out, fmt.Errorf("look for ready nodes: %w", err)
	}
	for shard, res := range replies {
		if len(res) < 3 {
			return out, fmt.Errorf("look for ready nodes: script returned %v", res)
		}
		out.Wants = append(out.Wants, wakes(shard, res[0])...)
		out.Overdue = append(out.Overdue, wakes(shard, res[1])...)
		for _, k := range wakes(shard, res[2]) {
			out.Pools = append(out.Pools, Pool{Wake{Shard: shard, Queue: k.Queue}, k.Gen == "1"})
		}
	}
	return out, nil
}

// Bump gives up a wake-task that will not come, and returns the one to send instead.
func (s Queues) Bump(ctx context.Context, k Wake) ([]Wake, error) {
	res, err := s.call(ctx, "bump", k.Shard, k.Queue, k.Gen)
	if err != nil {
		return nil, fmt.Errorf("give up a wake-task of queue %s: %w", k.Queue, err)
	}
	return wakes(k.Shard, res), nil
}

// Wake is a wake-task: it announces ready nodes of a queue in a shard.
type Wake struct {
	Shard int
	Queue string
	Gen   string // its generation, as the scripts count it
}

func wakes(shard int, reply any) []Wake {
	list, _ := reply.([]any)
	var out []Wake
	for i := 0; i+1 < len(list); i += 2 {
		out = append(out, Wake{shard, text(list[i]), text(list[i+1])})
	}
	return out
}

// Lane returns the lane in which ready nodes of a queue and priority wait.
func Lane(queue string, priority int) string {
	if priority > 0 {
		return "h:" + queue
	}
	return "n:" + queue
}

// Wakeups reads the wake-up lists of the queues of a worker.
type Wakeups struct {
	rdb    single
	conn   *redis.Conn
	nudge  string
	shards int
}

// Wakeups returns a reader of the wake-up lists of a worker, on a separate connection.
func (s Queues) Wakeups(ctx context.Context, worker string) (*Wakeups, error) {
	n, err := s.shardCount(ctx)
	if err != nil {
		return nil, err
	}
	rdb := s.rdb.(single)
	return &Wakeups{rdb: rdb, conn: rdb.Conn(), nudge: nudgeKey(worker), shards: n}, nil
}

// Next waits for a wake-up of one of some queues, which it prefers in this order. ok is false if there was none for a time,
// or the wait was ended by [Queues.Nudge].
func (w *Wakeups) Next(ctx context.Context, queues []string, wait time.Duration) (k Wake, ok bool, err error) {
	keys, at := []string{w.nudge}, map[string]Wake{}
	for _, q := range queues {
		for shard := range w.shards {
			key := wakeupKey(shard, q)
			keys, at[key] = append(keys, key), Wake{Shard: shard, Queue: q}
		}
	}
	got, err := w.conn.BLPop(ctx, wait, keys...).Result()
	if errors.Is(err, redis.Nil) {
		return k, false, nil
	}
	if err != nil {
		_ = w.conn.Close()
		w.conn = w.rdb.Conn() // one that has failed is not used again
		return k, false, fmt.Errorf("wait for work: %w", err)
	}
	k, ok = at[got[0]]
	k.Gen = got[1]
	return k, ok, nil
}

// Close returns the connection.
func (w *Wakeups) Close() error { return w.conn.Close() }

// Nudge ends the wait of a worker at its wake-up lists, or its next one.
func (s Queues) Nudge(ctx context.Context, worker string) error {
	pipe := s.rdb.Pipeline()
	pipe.RPush(ctx, nudgeKey(worker), "1")
	pipe.PExpire(ctx, nudgeKey(worker), 10*time.Second)
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("end the wait for work: %w", err)
	}
	return nil
}
