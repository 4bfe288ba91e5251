package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// NameTaken means that the name of a worker that starts has a heartbeat that has not expired.
type NameTaken struct {
	Beat string // when the last heartbeat was
}

func (*NameTaken) Error() string { return "another live worker has this name" }

// Beat records that a worker is alive. It returns the live workers and the dead
// ones. A worker is dead if calls of any workers have found it silent for longer than silence twice, at least confirm
// apart. With an empty name it only reads; info can be nil, and lasts for
// infoTTL. The first beat of a worker returns a *NameTaken while the heartbeat of a worker
// of the same name has not expired. If the workers were read, and only
// the info was not stored, it returns them with the error.
func (s Workers) Beat(ctx context.Context, name string, first bool, info any, silence, confirm time.Duration) (live, dead []string, err error) {
	res, err := s.scripts["beat"].Run(ctx, s.rdb, []string{s.workersKey()}, name, silence.Milliseconds(), confirm.Milliseconds(), first).StringSlice()
	if err != nil {
		return nil, nil, fmt.Errorf("beat: %w", err)
	}
	if res[0] == "taken" {
		return nil, nil, &NameTaken{Beat: res[1]}
	}
	n := 1 + int(toInt(res[0]))
	live, dead = res[n:], res[1:n]
	if info == nil {
		return live, dead, nil
	}
	raw, err := json.Marshal(info)
	if err != nil {
		return live, dead, fmt.Errorf("encode worker info: %w", err)
	}
	if err := s.rdb.Set(ctx, s.workerKey(name), raw, infoTTL).Err(); err != nil {
		return live, dead, fmt.Errorf("write worker info: %w", err)
	}
	return live, dead, nil
}

// infoTTL is for how long the info of a worker is kept after it was written.
const infoTTL = 15 * time.Second

// ListMissing lists workers that have leases and are not listed, such as after Redis went back in time. They count as
// silent.
func (s Workers) ListMissing(ctx context.Context, names []string) error {
	zs := make([]redis.Z, len(names))
	for i, n := range names {
		zs[i] = redis.Z{Member: n}
	}
	if err := s.rdb.ZAddNX(ctx, s.workersKey(), zs...).Err(); err != nil {
		return fmt.Errorf("list workers: %w", err)
	}
	return nil
}

// Remove removes a worker that was found dead from the list, unless it has sent a heartbeat that is not older than silence.
func (s Workers) Remove(ctx context.Context, name string, silence time.Duration) error {
	if err := s.scripts["remove"].Run(ctx, s.rdb, []string{s.workersKey()}, name, silence.Milliseconds()).Err(); err != nil {
		return fmt.Errorf("remove worker: %w", err)
	}
	return nil
}

// Bye removes a worker from the list that has stopped.
func (s Workers) Bye(ctx context.Context, name string) error {
	if err := s.rdb.ZRem(ctx, s.workersKey(), name, "?"+name).Err(); err != nil {
		return fmt.Errorf("sign off worker: %w", err)
	}
	return s.rdb.Del(ctx, s.workerKey(name)).Err()
}

// StoreSamples stores samples of tasks by their names, for those who send one by hand.
func (s Workers) StoreSamples(ctx context.Context, samples map[string]any) error {
	if len(samples) == 0 {
		return nil
	}
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, s.samplesKey(), samples)
		p.Expire(ctx, s.samplesKey(), samplesTTL)
		return nil
	})
	if err != nil {
		return fmt.Errorf("store samples of tasks: %w", err)
	}
	return nil
}

// Sample reads the sample of a task; nil if there is none.
func (s Workers) Sample(ctx context.Context, task string) ([]byte, error) {
	raw, err := s.rdb.HGet(ctx, s.samplesKey(), task).Bytes()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("read sample of task %s: %w", task, err)
	}
	return raw, nil
}

// samplesTTL is for how long samples are kept after a worker has started.
const samplesTTL = 30 * 24 * time.Hour

// Infos reads the infos of workers; missing ones are nil.
func (s Workers) Infos(ctx context.Context, names []string) ([][]byte, error) {
	cmds, err := onEach(ctx, s.db, "read worker info", names, func(pipe redis.Pipeliner, name string) *redis.StringCmd { return pipe.Get(ctx, s.workerKey(name)) })
	out := make([][]byte, len(cmds))
	for i, c := range cmds {
		out[i] = raw(c.Val())
	}
	return out, err
}

// PongChannel is the channel on which the workers of this database reply to a ping.
func (s Workers) PongChannel(token string) string {
	return s.pongChannel(token, s.database())
}

// Pong replies to a ping as a worker.
func (s Workers) Pong(ctx context.Context, token, worker string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := s.rdb.Publish(ctx, s.PongChannel(token), worker).Err(); err != nil {
		return fmt.Errorf("answer ping: %w", err)
	}
	return nil
}
