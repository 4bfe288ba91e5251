package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"muster/jobs/pipeline"
	"muster/tasks/workqueue"
)

// Limits of Take.
const (
	maxTake  = 100 // assignments at once
	maxLooks = 8   // jobs that one call looks into
	// lookAgain is when a job that was looked into is looked into again, if whoever did so died.
	lookAgain = 30 * time.Second
)

// Take leases up to n pieces of work for a role, or for "task:NAME", to an agent: of the job whose work was not taken for
// longest, so that jobs take turns. A point of priority is worth a minute. next is how long to wait before another call can find more; it is below
// 0 when only Ready can tell.
func (s *Leases) Take(ctx context.Context, worker, agent string, n int) (work []Work, next time.Duration, err error) {
	n = min(n, maxTake)
	next = -1
	for looks := 0; len(work) < n && looks < maxLooks; {
		reply, err := s.run(ctx, "look for work", "claim", []string{readyKey(worker), dueKey(worker)}, prefix+"j:", 1, lookAgain.Milliseconds())
		if err != nil {
			return work, 0, err
		}
		ids := reply[:len(reply)-2]
		wait, _ := strconv.ParseInt(toString(reply[len(ids)]), 10, 64)
		ms, _ := strconv.ParseInt(toString(reply[len(ids)+1]), 10, 64)
		now := time.UnixMilli(ms)
		next = time.Duration(wait) * time.Millisecond
		if wait < 0 {
			next = -1
		}
		if len(ids) == 0 {
			return work, next, nil
		}
		for _, v := range ids {
			looks++
			got, err := s.takeFrom(ctx, toString(v), worker, agent, n-len(work), now)
			work = append(work, got...)
			if err != nil {
				s.cfg.Logger.WarnContext(ctx, "a job cannot be worked on", "job", toString(v), "err", err)
			}
		}
	}
	return work, next, nil
}

// takeFrom leases work of one job.
func (s *Leases) takeFrom(ctx context.Context, id, worker, agent string, n int, now time.Time) ([]Work, error) {
	p, err := s.plan(ctx, id)
	if err != nil {
		return nil, err
	}
	budget := workqueue.Budget{Default: 0, Left: map[string]int{}}
	for _, st := range p.Stages {
		if st.Worker() == worker {
			budget.Left[lane(st.Name)] = n
		}
	}
	batch, err := s.queue(id).LeaseWithin(ctx, agent, n, budget)
	if err != nil {
		return nil, err
	}
	switch {
	case len(batch.Items) == n: // there may be more
		err = s.ready(ctx, id, worker, 0)
	case batch.Next >= 0:
		err = s.ready(ctx, id, worker, max(batch.Next, time.Millisecond))
	}
	if err != nil {
		s.cfg.Logger.WarnContext(ctx, "work is found again by the next sweep", "job", id, "err", err)
	}
	if len(batch.Items) == 0 {
		return nil, nil
	}
	told, err := s.brief(ctx, id)
	if err != nil {
		return nil, errors.Join(err, s.queue(id).Return(ctx, batch.Items...))
	}
	results, err := s.earlierResults(ctx, id, p, batch.Items)
	if err != nil {
		return nil, errors.Join(err, s.queue(id).Return(ctx, batch.Items...))
	}
	work := make([]Work, 0, len(batch.Items))
	for _, it := range batch.Items {
		w, err := newWork(id, p, told, it, s.cfg.Lease, now)
		if err != nil { // it is damaged: it ends, so that it does not come again and again
			s.cfg.Logger.ErrorContext(ctx, "an item cannot be read", "job", id, "item", it.ID, "err", err)
			if err := s.queue(id).Settle(ctx, it, workqueue.Failed(err)); err != nil {
				return work, err
			}
			s.flow.settled(ctx, id, pipeline.Stage{})
			continue
		}
		for _, st := range p.Stages {
			if st.Name == w.Stage {
				break
			}
			if raw := results[st.Name]; len(raw) > 0 && len(raw) <= MaxInline {
				if w.Results == nil {
					w.Results = map[string]json.RawMessage{}
				}
				w.Results[st.Name] = raw
			}
		}
		work = append(work, w)
	}
	return work, nil
}

// MaxInline is the size in bytes up to which assignments contain the results of earlier stages.
const MaxInline = 16 << 10

// earlierResults returns the results of the stages before those of leased items.
func (s *store) earlierResults(ctx context.Context, id string, p *pipeline.Pipeline, items []workqueue.Leased) (map[string]json.RawMessage, error) {
	last := 0
	for i, st := range p.Stages {
		if slices.ContainsFunc(items, func(it workqueue.Leased) bool { return it.Kind == st.Name }) {
			last = i
		}
	}
	return s.results(ctx, id, p.Stages[:last])
}

func newWork(id string, p *pipeline.Pipeline, told brief, it workqueue.Leased, lease time.Duration, now time.Time) (Work, error) {
	st := p.Stage(it.Kind)
	if st == nil {
		return Work{}, fmt.Errorf("the pipeline has no stage %q", it.Kind)
	}
	w := Work{
		JobID: id, Stage: st.Name, Takes: st.Takes, Agent: it.Worker, Attempt: it.Attempts + 1, Fence: it.Token,
		Expires: now.Add(lease).UTC(), Deadline: now.Add(timeoutOf(*st)).UTC(), QueueItem: it.ID,
		Prompt: told.prompt, Context: told.context, Document: told.document, Headers: told.headers,
	}
	if st.Takes == pipeline.TakesItem {
		item, err := parseItem(id, it.ID, it.Payload)
		if err != nil {
			return Work{}, err
		}
		item.Status, item.Stage, item.Agent, item.RetryCount = ItemValidating, st.Name, it.Worker, it.Attempts
		w.Key, w.Item = item.Key, &item
	}
	return w, nil
}

func timeoutOf(st pipeline.Stage) time.Duration {
	switch {
	case st.Timeout > 0:
		return st.Timeout
	case st.Takes == pipeline.TakesJob:
		return time.Hour
	}
	return 10 * time.Minute
}

// lease returns the lease of the work queue that the work holds.
func (w Work) lease() workqueue.Leased {
	return workqueue.Leased{Item: workqueue.Item{ID: w.QueueItem}, Token: w.Fence, Worker: w.Agent, Attempts: max(0, w.Attempt-1)}
}

// brief is what agents are told of a job.
type brief struct {
	prompt   string
	context  json.RawMessage
	document *Document
	headers  map[string]string
}

// brief reads what agents are told of a job. It is not remembered: it can be large, and the context can be edited.
func (s *store) brief(ctx context.Context, id string) (brief, error) {
	values, err := s.rdb.HMGet(ctx, recordKey(id), "prompt", "context", "doc", "headers").Result()
	if err != nil {
		return brief{}, fmt.Errorf("read job %s: %w", id, err)
	}
	r := record{"prompt": toString(values[0]), "context": toString(values[1]), "doc": toString(values[2]), "headers": toString(values[3])}
	return brief{r["prompt"], json.RawMessage(r["context"]), r.document(), r.headers()}, nil
}

// plan returns the pipeline of a job.
func (s *store) plan(ctx context.Context, id string) (*pipeline.Pipeline, error) {
	if p := s.plans.get(id); p != nil {
		return p, nil
	}
	values, err := s.rdb.HMGet(ctx, recordKey(id), "kind", "pipeline").Result()
	if err != nil {
		return nil, fmt.Errorf("read job %s: %w", id, err)
	}
	r := record{"kind": toString(values[0]), "pipeline": toString(values[1])}
	if r["kind"] == "" {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	p, err := r.pipeline()
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, fmt.Errorf("job %s is of kind %s and has no stages", id, r["kind"])
	}
	s.plans.put(id, p)
	return p, nil
}

// Ready returns a channel that gets a value when a job may have work for some role or Go task. Values can be lost. Call
// stop when done; it closes the channel.
func (s *Leases) Ready(ctx context.Context) (ready <-chan struct{}, stop func()) {
	sub := s.rdb.Subscribe(ctx, workChannel)
	out := make(chan struct{}, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(out)
		for range sub.Channel() {
			select {
			case out <- struct{}{}:
			default:
			}
		}
	}()
	return out, func() {
		_ = sub.Close()
		<-done
	}
}
