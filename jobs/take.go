package jobs

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/jobs/pipeline"
	"muster/tasks/workqueue"
)

// Limits of Take.
const (
	maxTake  = 100 // assignments at once
	maxLooks = 8   // jobs that one call looks into
)

// inputFields are the fields of the record of a job that its work has.
var inputFields = []any{"prompt", "context", "doc", "headers", "prompt_sha256", "context_sha256"}

// Take leases up to n pieces of work for a role, or for "task:NAME", to an agent. Jobs take turns: the job whose work was last
// taken longest ago is first, and a point of priority counts as a minute. next is how long to wait before another call can find
// more; below 0, only WaitForWork reports more.
func (s *Service) Take(ctx context.Context, worker, agent string, n int) (work []Work, next time.Duration, err error) {
	n = min(n, maxTake)
	next = -1
	for looks := 0; len(work) < n && looks < maxLooks; looks++ {
		reply, err := s.run(ctx, "look for work", "claim", []string{readyKey(worker), dueKey(worker), wakeKey(worker)}, append([]any{prefix + "j:"}, inputFields...)...)
		if err != nil {
			return work, 0, err
		}
		next = time.Duration(toInt(reply[0])) * time.Millisecond
		if len(reply) == 2 {
			return work, next, nil
		}
		c := claimed{id: toString(reply[2]), place: toString(reply[3]), at: time.UnixMilli(toInt(reply[1])), input: record{}}
		for i, name := range inputFields {
			c.input[toString(name)] = toString(reply[4+i])
		}
		got, err := s.takeFrom(ctx, c, worker, agent, n-len(work))
		work = append(work, got...)
		if err != nil {
			s.cfg.Logger.WarnContext(ctx, "a job cannot be worked on", "job", c.id, "err", err)
		}
	}
	return work, next, nil
}

// claimed is a job that was taken off the ready list of a role.
type claimed struct {
	id    string
	place string    // its place, if it is added again
	at    time.Time // by the clock of Redis
	input record    // the inputFields
}

// takeFrom leases work of one job.
func (s *Service) takeFrom(ctx context.Context, c claimed, worker, agent string, n int) ([]Work, error) {
	id, now, r := c.id, c.at, c.input
	p, err := s.plan(ctx, id)
	if err != nil {
		return nil, err
	}
	budget := workqueue.Budget{Default: 0, Left: map[string]int{}}
	lease := s.cfg.Lease
	for _, st := range p.Stages {
		if st.Worker() == worker {
			budget.Left[lane(st.Name)] = n
			lease = min(lease, timeoutOf(st)+grace)
		}
	}
	by := holder{agent, rand.Text()[:12], now}
	batch, err := s.queueWith(id, lease).LeaseWithin(ctx, by.String(), n, budget)
	if err != nil {
		return nil, err
	}
	if batch.Exhausted > 0 {
		if err := s.tellEndings(ctx, id); err != nil {
			s.cfg.Logger.WarnContext(ctx, "failed items are found by the next sweep", "job", id, "err", err)
		}
		s.advanceAfter(ctx, id, pipeline.Stage{})
	}
	switch {
	case len(batch.Items) == n: // there may be more
		err = s.announceAt(ctx, id, worker, 0, c.place)
	case batch.Next >= 0:
		err = s.announceWork(ctx, id, worker, max(batch.Next, time.Millisecond))
	}
	if err != nil {
		s.cfg.Logger.WarnContext(ctx, "work is found again by the next sweep", "job", id, "err", err)
	}
	if len(batch.Items) == 0 {
		return nil, nil
	}
	earlier, err := s.earlier(ctx, id, p, batch.Items)
	if err != nil {
		return nil, errors.Join(err, s.queue(id).Return(ctx, batch.Items...))
	}
	work := make([]Work, 0, len(batch.Items))
	for _, it := range batch.Items {
		w, err := newWork(id, p, it)
		if err != nil { // it is damaged: it ends, so that it does not come again and again
			s.cfg.Logger.ErrorContext(ctx, "an item cannot be read", "job", id, "item", it.ID, "err", err)
			if err := s.queue(id).Settle(ctx, it, workqueue.Failed(err)); err != nil {
				return work, err
			}
			s.advanceAfter(ctx, id, pipeline.Stage{})
			continue
		}
		w.Expires = now.Add(lease).UTC()
		w.Prompt, w.PromptSHA256, w.ContextSHA256, w.Document, w.Headers = r["prompt"], r["prompt_sha256"], r["context_sha256"], r.document(), r.headers()
		if r["context"] != "" {
			w.Context = json.RawMessage(r["context"])
		}
		for _, st := range p.Stages {
			if st.Name == w.Stage {
				break
			}
			if raw := earlier[st.Name].Patch; len(raw) > 0 && len(raw) <= MaxInline {
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

// MaxInline is the size in bytes up to which assignments contain the prompt, the context, and results of earlier stages.
const MaxInline = 16 << 10

// earlier returns the outcomes of the stages before the stages of leased items.
func (s *Service) earlier(ctx context.Context, id string, p *pipeline.Pipeline, items []workqueue.Leased) (map[string]outcome, error) {
	last := 0
	for i, st := range p.Stages {
		if slices.ContainsFunc(items, func(it workqueue.Leased) bool { return it.Kind == st.Name }) {
			last = i
		}
	}
	return s.outcomes(ctx, id, p.Stages[:last])
}

// newWork returns the work of a lease, without the fields that are read from the record of the job.
func newWork(id string, p *pipeline.Pipeline, it workqueue.Leased) (Work, error) {
	st := p.Stage(it.Kind)
	if st == nil {
		return Work{}, fmt.Errorf("the pipeline has no stage %q", it.Kind)
	}
	by := parseHolder(it.Worker)
	w := Work{
		JobID: id, Stage: st.Name, Role: st.Worker(), Takes: st.Takes, Agent: by.agent, Nonce: by.nonce, Begun: by.at.UTC(), Deadline: by.at.Add(timeoutOf(*st)).UTC(),
		Attempt: it.Attempts + 1, Retried: it.Retried, Fence: it.Token, QueueItem: it.ID,
	}
	if st.Takes == pipeline.TakesItem {
		item, err := parseItem(id, it.ID, it.Payload)
		if err != nil {
			return Work{}, err
		}
		item.Status, item.Stage, item.Agent, item.RetryCount = ItemValidating, st.Name, by.agent, it.Attempts
		item.fill(p)
		w.Key, w.Item = item.Key, &item
	}
	return w, nil
}

// Find returns the work of a lease of an item in the queue of a job, without prompt, context, document and results. Work
// that the lease has completed is Done and has little more. The error is ErrNotFound, ErrNoItem, or ErrLeaseLost.
func (s *Service) Find(ctx context.Context, id, queueItem string, fence int64) (Work, error) {
	p, err := s.plan(ctx, id)
	if err != nil {
		return Work{}, err
	}
	info, err := s.queue(id).Peek(ctx, queueItem)
	if err != nil {
		return Work{}, err
	}
	if info == nil {
		return Work{}, fmt.Errorf("%w: %.80q of job %s", ErrNoItem, queueItem, id)
	}
	switch held := info.Token == fence; {
	case held && info.State == workqueue.StateInProgress:
		w, err := newWork(id, p, workqueue.Leased{Item: info.Item, Worker: info.Worker, Token: fence, Attempts: info.Attempts, Retried: info.Retried})
		w.Expires = info.Expires
		return w, err
	case held && (info.State == workqueue.StateDone || info.State == workqueue.StateSkipped), info.Passed == fence:
		return Work{JobID: id, Fence: fence, QueueItem: queueItem, Done: true}, nil
	}
	return Work{}, ErrLeaseLost
}

// grace is how long a lease may last beyond the deadline of its work: whoever waits for the agent fails the work first.
const grace = 500 * time.Millisecond

// holder is who holds a lease of a work queue.
type holder struct {
	agent string
	nonce string    // random; the ids of the assignments have it
	at    time.Time // when the lease was taken
}

// String returns the name of a worker in the queue.
func (h holder) String() string { return fmt.Sprintf("%s %s %d", h.agent, h.nonce, h.at.UnixMilli()) }

// parseHolder is the reverse of String. Another name is an agent.
func parseHolder(worker string) holder {
	f := strings.Split(worker, " ")
	if n := len(f); n > 2 {
		if ms, err := strconv.ParseInt(f[n-1], 10, 64); err == nil {
			return holder{strings.Join(f[:n-2], " "), f[n-2], time.UnixMilli(ms)}
		}
	}
	return holder{agent: worker}
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

// plan returns the pipeline of a job.
func (s *Service) plan(ctx context.Context, id string) (*pipeline.Pipeline, error) {
	if p := s.plans.get(id); p != nil {
		return p, nil
	}
	r, err := s.field(ctx, id, "status", "pipeline_sha256")
	if err != nil {
		return nil, err
	}
	if r["status"] == "" {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	p, err := s.pipeline(ctx, r)
	if err == nil {
		s.plans.put(id, p)
	}
	return p, err
}

// WaitForWork waits up to d, rounded to seconds and at least one, until there may be work for one of several workers, each a
// role or "task:NAME", and returns that worker, or "" if the time is over. No other process is woken, so the caller takes the
// work or calls PassOn. It occupies one connection.
func (s *Service) WaitForWork(ctx context.Context, workers []string, d time.Duration) (worker string, err error) {
	keys := make([]string, len(workers))
	for i, worker := range workers {
		keys[i] = wakeKey(worker)
	}
	popped, err := s.rdb.BLPop(ctx, max(d.Round(time.Second), time.Second), keys...).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("wait for work of %s: %w", strings.Join(workers, ", "), err)
	}
	return strings.TrimPrefix(popped[0], wakeKey("")), nil
}

// Headers returns the trace and the IDs of the request that created a job; see tracing.Context.
func (s *Service) Headers(ctx context.Context, id string) (map[string]string, error) {
	r, err := s.field(ctx, id, "headers")
	return r.headers(), err
}

// Input returns the whole prompt and context of a job.
func (s *Service) Input(ctx context.Context, id string) (prompt string, context json.RawMessage, err error) {
	r, err := s.read(ctx, id)
	if err == nil {
		err = s.addLarge(ctx, id, r)
	}
	return r["prompt"], json.RawMessage(r["context"]), err
}

// PassOn makes WaitForWork return in a process.
func (s *Service) PassOn(ctx context.Context, worker string) error {
	_, err := s.run(ctx, "pass on work of "+worker, "wake", []string{wakeKey(worker)})
	return err
}
