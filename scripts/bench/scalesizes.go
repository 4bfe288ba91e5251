package main

import (
	"context"
	"fmt"
	"io"
)

// sizeCell is the cost of a task by the size of its group or queue: one worker, one node of Redis without a file. First all
// are sent, then the worker runs them.
type sizeCell struct {
	Work     string  `json:"work"`
	Size     int     `json:"size"`  // tasks of a workflow, items of a queue
	Tasks    int     `json:"tasks"` // in all: small groups are sent many times
	RedisIn  float64 `json:"redis_send_us"`
	RedisOut float64 `json:"redis_run_us"`
	Sender   float64 `json:"sender_us"`
	Worker   float64 `json:"worker_us"`
	Waiting  float64 `json:"bytes_waiting"` // in Redis
	Ended    float64 `json:"bytes_ended"`
	SendPeak float64 `json:"sender_peak"` // bytes of the process
	ReadPeak float64 `json:"reader_peak"` // of the same, once it has read the values
	WorkPeak float64 `json:"worker_peak"`
}

// notRun is a size that was left out.
type notRun struct {
	Work  string  `json:"work"`
	Size  int     `json:"size"`
	Needs float64 `json:"needs_bytes"` // of Redis, by what the size before has used for each
}

const leastTasks = 30_000 // of a size: smaller groups are sent many times, for a time that can be measured

func (rep *scaleReport) addSizes(ctx context.Context, f *farm, p plan, progress io.Writer) error {
	for _, work := range []string{workGroups, workChords, workItems} {
		if err := rep.addSeries(ctx, f, p, work, 0, progress); err != nil {
			return err
		}
	}
	return nil
}

// addSeries measures the sizes of a work that fit. The first is expected to take so many bytes for each, the others as
// many as the one before.
func (rep *scaleReport) addSeries(ctx context.Context, f *farm, p plan, work string, bytes float64, progress io.Writer) error {
	sizes := p.groups
	if work == workItems {
		sizes = p.items
	}
	for _, size := range sizes {
		n, per := size, 1
		if work != workItems {
			n, per = max(leastTasks/size, 1)*size, min(size, groupLimit)
		}
		if work == workChords && size > groupLimit {
			continue
		}
		if needs := bytes * float64(n); needs > p.memory {
			rep.NotRun = append(rep.NotRun, notRun{work, size, needs})
			continue
		}
		fmt.Fprintf(progress, "%s of %d …\n", work, size)
		c, err := measureSize(ctx, f, work, n, per)
		if err != nil {
			return fmt.Errorf("%s of %d: %w", work, size, err)
		}
		c.Size = size
		bytes = max(c.Waiting, c.Ended)
		rep.Sizes = append(rep.Sizes, c)
	}
	return nil
}

func measureSize(ctx context.Context, f *farm, work string, n, per int) (sizeCell, error) {
	req := request{Work: work, Per: per, Queues: 1}
	var sent, run used
	var sender, reader, worker reply
	memory, err := withCrew(ctx, f, 0, req, func(ctx context.Context, c *crew) (err error) {
		sent, err = c.measure(ctx, f, func() (err error) {
			sender, err = c.sender.ask(request{Do: "send", Work: work, Per: per, Queues: 1, N: n})
			return err
		})
		if err != nil {
			return err
		}
		if err := c.hire(ctx, f, "worker", req); err != nil {
			return err
		}
		run, err = c.measure(ctx, f, func() (err error) {
			worker, err = c.await(ctx, int64(n))
			return err
		})
		if err == nil {
			reader, err = c.sender.ask(request{Do: "check"})
		}
		return err
	})
	each := float64(n)
	return sizeCell{
		Work: work, Tasks: n,
		RedisIn: sent.redis.cpu / each, RedisOut: run.redis.cpu / each, Sender: sent.sender / each, Worker: run.worker / each,
		Waiting: sent.redis.memory / each, Ended: memory / each,
		SendPeak: sender.Peak, ReadPeak: reader.Peak, WorkPeak: worker.Peak,
	}, err
}
