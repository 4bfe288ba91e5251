package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"muster/jobs/pipeline"
	"muster/tasks/workqueue"
)

// Beat extends the lease of work, up to its deadline, and returns when it expires. It returns ErrLeaseLost if another agent has
// the work, its deadline has passed, or its job has ended.
func (s *Service) Beat(ctx context.Context, w Work) (time.Time, error) {
	now, err := s.now(ctx)
	if err != nil {
		return now, err
	}
	left := w.Deadline.Sub(now)
	if left <= 0 {
		return now, ErrLeaseLost
	}
	lease := min(s.cfg.Lease, left+grace)
	lost, err := s.queueWith(w.JobID, lease).Heartbeat(ctx, w.lease())
	if err == nil && len(lost) > 0 {
		err = ErrLeaseLost
	}
	return now.Add(lease).UTC(), err
}

// Add adds items to the job, as a stage that takes the job does while it works. They are integrated if the next stage does
// not take them. An item whose key exists changes nothing. It returns how many are new; ErrLeaseLost, or a *FieldError, and
// then none is added.
func (s *Service) Add(ctx context.Context, w Work, items []NewItem) (int, error) {
	p, err := s.plan(ctx, w.JobID)
	if err != nil {
		return 0, err
	}
	next := following(p, w.Stage)
	if w.Takes != pipeline.TakesJob {
		return 0, bad("items", "stage %s takes items and emits none", w.Stage)
	}
	if len(items) > MaxItems {
		return 0, bad("items", "%d items; at most %d are allowed in one call", len(items), MaxItems)
	}
	queued, now := make([]workqueue.Item, len(items)), time.Now().UnixMilli()
	for i, it := range items {
		field := fmt.Sprintf("items[%d]", i)
		if err := it.check(field, p); err != nil {
			return 0, err
		}
		if e := (emitted{NewItem: it, Created: now}); next == nil {
			queued[i], err = e.integratedItem(w.Stage, w.Agent)
		} else {
			queued[i], err = e.queueItem(*next, s.attempts(*next))
		}
		if err != nil {
			return 0, err
		}
		if len(queued[i].Payload) > MaxItem {
			return 0, bad(field, "has %d bytes; at most %d are allowed", len(queued[i].Payload), MaxItem)
		}
	}
	added, err := s.queue(w.JobID).EnqueueUnder(ctx, w.lease(), queued...)
	if added > 0 {
		if next != nil {
			err = errors.Join(err, s.announceWork(ctx, w.JobID, next.Worker(), 0))
		}
		s.Progressed(ctx, w.JobID)
	}
	return added, asLeaseLost(err)
}

// following returns the stage that takes the items of a stage, or nil.
func following(p *pipeline.Pipeline, stage string) *pipeline.Stage {
	for i := range p.Stages {
		if p.Stages[i].Name != stage || i+1 == len(p.Stages) || p.Stages[i+1].Takes != pipeline.TakesItem {
			continue
		}
		return &p.Stages[i+1]
	}
	return nil
}

// asLeaseLost converts the queue's errors for a lost lease to ErrLeaseLost.
func asLeaseLost(err error) error {
	if errors.Is(err, workqueue.ErrLeaseLost) || errors.Is(err, workqueue.ErrSealed) {
		return ErrLeaseLost
	}
	return err
}

// Complete completes work; AddUsage then records the progress. Repeating the call under the same lease succeeds and changes nothing. It returns
// ErrLeaseLost if another agent has the work or the job has ended, and a *FieldError for an invalid result.
func (s *Service) Complete(ctx context.Context, w Work, a Answer) error {
	p, err := s.plan(ctx, w.JobID)
	if err != nil {
		return err
	}
	st := p.Stage(w.Stage)
	if st == nil {
		return fmt.Errorf("job %s has no stage %s", w.JobID, w.Stage)
	}
	if err := text("reason", a.Reason, MaxItem); err != nil {
		return err
	}
	if len(a.Patch) > 0 {
		if err := CheckJSON("item", a.Patch, MaxItem); err != nil {
			return err
		}
	}
	last := true
	if w.Takes == pipeline.TakesJob {
		err = s.completeJobStage(ctx, w, a)
	} else {
		last, err = s.completeItem(ctx, p, *st, w, a)
	}
	if err != nil {
		return asLeaseLost(err)
	}
	if last {
		s.advanceAfter(ctx, w.JobID, *st)
	}
	return nil
}

// advanceAfter advances a job after work of a stage has ended, unless other items of the stage are open.
func (s *Service) advanceAfter(ctx context.Context, id string, st pipeline.Stage) {
	if st.Takes == pipeline.TakesItem {
		lanes, err := s.queue(id).LaneStats(ctx)
		if n := lanes[lane(st.Name)]; err == nil && n.Queued+n.InProgress > 0 {
			return
		}
	}
	if err := s.advance(ctx, id); err != nil && ctx.Err() == nil {
		s.cfg.Logger.WarnContext(ctx, "the job will be advanced by the next sweep", "job", id, "err", err)
	}
}

func (s *Service) completeJobStage(ctx context.Context, w Work, a Answer) error {
	if a.Verdict != "" && a.Verdict != "accept" {
		return bad("verdict", "a stage that takes the job has none; fail the assignment instead")
	}
	if len(a.Items) > 0 {
		_, err := s.Add(ctx, w, a.Items)
		if errors.Is(err, ErrLeaseLost) {
			if found, missing := s.Find(ctx, w.JobID, w.QueueItem, w.Fence); missing == nil && found.Done {
				return nil // this lease has completed the stage, and the reply was lost
			}
		}
		if err != nil {
			return err
		}
	}
	result, err := json.Marshal(outcome{Agent: w.Agent, At: time.Now().UnixMilli(), Patch: a.Patch})
	if err != nil {
		return err
	}
	return s.queue(w.JobID).Settle(ctx, w.lease(), workqueue.Done().With(result))
}

// completeItem ends work on an item. last is false if other items of the stage are known to be open.
func (s *Service) completeItem(ctx context.Context, p *pipeline.Pipeline, st pipeline.Stage, w Work, a Answer) (last bool, err error) {
	if len(a.Items) > 0 {
		return false, bad("items", "stage %s takes items and emits none", st.Name)
	}
	to, err := stateOf(st, a.Verdict)
	if err != nil {
		return false, err
	}
	if to == pipeline.Rejected && strings.TrimSpace(a.Reason) == "" {
		return false, bad("reason", "is needed to reject an item")
	}
	it := *w.Item
	if err := it.apply(a.Patch); err != nil {
		return false, err
	}
	if err := it.check("item", p); err != nil {
		return false, err
	}
	q := s.queue(w.JobID)
	if next := following(p, st.Name); next != nil && to == pipeline.Integrated {
		item, err := it.emitted().queueItem(*next, s.attempts(*next))
		if err != nil {
			return false, err
		}
		if err := q.Pass(ctx, w.lease(), item); err != nil {
			return false, err
		}
		return true, s.announceWork(ctx, w.JobID, next.Worker(), 0)
	}
	result, err := json.Marshal(outcome{Agent: w.Agent, Verdict: a.Verdict, Reason: a.Reason, At: time.Now().UnixMilli(), Patch: a.Patch})
	if err != nil {
		return false, err
	}
	o := workqueue.Done()
	if to == pipeline.Rejected {
		o = workqueue.Skipped(a.Reason)
	}
	if last, err = q.SettleLast(ctx, w.lease(), o.With(result)); err != nil {
		return false, err
	}
	s.itemEnded(w, ItemStatus(to))
	return last, nil
}

// stateOf returns the state that a verdict leads to.
func stateOf(st pipeline.Stage, verdict string) (string, error) {
	states := st.States
	if len(states) == 0 {
		states = map[string]string{"accept": pipeline.Integrated, "reject": pipeline.Rejected}
	}
	if to, ok := states[cmp.Or(verdict, "accept")]; ok {
		return to, nil
	}
	var known []string
	for v := range states {
		known = append(known, v)
	}
	if verdict == "" {
		return "", bad("verdict", "required; stage %s has %s", st.Name, joinSorted(known))
	}
	return "", bad("verdict", "%.40q is not a verdict of stage %s; it has %s", verdict, st.Name, joinSorted(known))
}

// Fail ends an attempt at work. The work is tried again after the delay (below 0: the back-off of the queue) unless it
// has used up its attempts; with counts false it is not an attempt. It returns ErrLeaseLost as Complete does.
func (s *Service) Fail(ctx context.Context, w Work, cause error, after time.Duration, counts bool) error {
	p, err := s.plan(ctx, w.JobID)
	if err != nil {
		return err
	}
	st := p.Stage(w.Stage)
	if st == nil {
		return fmt.Errorf("job %s has no stage %s", w.JobID, w.Stage)
	}
	q := s.queue(w.JobID)
	var permanent interface{ Permanent() bool }
	if errors.As(cause, &permanent) && permanent.Permanent() {
		if err := q.Settle(ctx, w.lease(), workqueue.Failed(cause)); err != nil {
			return asLeaseLost(err)
		}
		return s.noteExhausted(ctx, *st, w)
	}
	if after < 0 {
		after = q.Backoff(w.Attempt)
	}
	state, err := q.Retry(ctx, w.lease(), cause, after, counts)
	if err != nil {
		return asLeaseLost(err)
	}
	if state == workqueue.StateError {
		return s.noteExhausted(ctx, *st, w)
	}
	return s.announceWork(ctx, w.JobID, st.Worker(), after)
}

// noteExhausted notes that work has failed for the last time.
func (s *Service) noteExhausted(ctx context.Context, st pipeline.Stage, w Work) error {
	if w.Takes == pipeline.TakesItem {
		state := ItemFailed
		if st.Review {
			state = ItemReview
		}
		if err := s.tellEndings(ctx, w.JobID); err != nil {
			return err
		}
		s.Progressed(ctx, w.JobID)
		s.itemEnded(w, state)
	}
	s.advanceAfter(ctx, w.JobID, st)
	return nil
}

// Release returns work to the queue without counting an attempt. It succeeds if the lease is lost.
func (s *Service) Release(ctx context.Context, w Work) error {
	p, err := s.plan(ctx, w.JobID)
	if err != nil {
		return err
	}
	if err := s.queue(w.JobID).Return(ctx, w.lease()); err != nil {
		return err
	}
	if st := p.Stage(w.Stage); st != nil {
		return s.announceWork(ctx, w.JobID, st.Worker(), 0)
	}
	return nil
}

// maxUsage bounds the usage counters of a job, over all agents.
const maxUsage = 5000

// AddUsage adds the usage of an assignment to a job, by name, and records progress at a time by the clock of Redis, zero for
// now; the name "assignments" counts the assignments that an agent has completed. It does nothing if the job was deleted.
func (s *Service) AddUsage(ctx context.Context, id, agent string, usage map[string]int64, at time.Time) error {
	args := []any{at.UnixMilli(), maxUsage}
	for name, n := range usage {
		args = append(args, agent+" "+name, n)
	}
	_, err := s.run(ctx, "note the progress and usage of job "+id, "usage", []string{recordKey(id), usageKey(id)}, args...)
	return err
}

// Progressed records progress of a job, for example growing usage that its agents report.
func (s *Service) Progressed(ctx context.Context, id string) {
	if err := s.AddUsage(ctx, id, "", nil, time.Time{}); err != nil && ctx.Err() == nil {
		s.cfg.Logger.WarnContext(ctx, "the progress of the job is not noted", "job", id, "err", err)
	}
}

// itemEnded measures the time of an item that has ended.
func (s *Service) itemEnded(w Work, state ItemStatus) {
	if s.cfg.Took != nil {
		s.cfg.Took("item", string(state), max(0, time.Since(w.Item.CreatedAt)))
	}
}

// endingChunk is how many endings become events in one script.
const endingChunk = 200

// seq is the form of the places of endings.
var seq = regexp.MustCompile(`^[0-9]{1,19}-[0-9]{1,19}$`)

// tellEndings adds the events of items that have failed or were decided on. The queue, which is in another slot than the
// events, has noted each in the step that made it true; the record contains the last ending that is in the events, and changes with
// them. So each event is added once, by whoever comes first: who ended the item, the sweep, or who ends the job.
func (s *Service) tellEndings(ctx context.Context, id string) error {
	p, err := s.plan(ctx, id)
	if err != nil {
		return err
	}
	keys := append(append([]string{recordKey(id)}, s.eventKeys(id)...), reviewsKey)
	for {
		r, err := s.field(ctx, id, "endings")
		if err != nil {
			return err
		}
		after, from := r["endings"], r["endings"]
		if !seq.MatchString(from) { // damaged: events twice are better than none
			from = ""
		}
		endings, err := s.queue(id).Endings(ctx, from, endingChunk)
		if err != nil || len(endings) == 0 {
			return err
		}
		args := []any{id, after, endings[len(endings)-1].Seq}
		for _, e := range endings {
			key, ok := strings.CutPrefix(e.Item, itemID(""))
			if !ok {
				continue // a stage that takes the job
			}
			event, data, err := s.ending(ctx, id, p, key, e)
			if err != nil {
				return err
			}
			args = append(args, event, encode(data))
		}
		reply, err := s.run(ctx, "add the events of items of job "+id, "endings", keys, args...)
		if err != nil {
			return err
		}
		if toInt(reply[0]) == 0 { // another was faster, or the job was deleted
			if err := s.exists(ctx, id); err != nil {
				return err
			}
		}
	}
}

// ending returns the event of an item that has ended.
func (s *Service) ending(ctx context.Context, id string, p *pipeline.Pipeline, key string, e workqueue.Ending) (event string, data map[string]string, err error) {
	if e.State == workqueue.StateError {
		event = "item.failed"
		stage := ""
		for _, st := range p.Stages {
			if len(e.ResourceKeys) == 1 && e.ResourceKeys[0] == lane(st.Name) {
				if stage = st.Name; st.Review {
					event = "item.review"
				}
			}
		}
		return event, map[string]string{"key": key, "stage": stage, "error": e.Note}, nil
	}
	data = map[string]string{"key": key, "decision": "accept", "reason": e.Note, "by": ""}
	if e.State == workqueue.StateSkipped {
		data["decision"] = "reject"
	}
	result := e.Data
	if len(result) == 0 {
		infos, err := s.queue(id).Get(ctx, e.Item)
		if err != nil {
			return "", nil, err
		}
		if len(infos) == 1 {
			result = infos[0].Result
		}
	}
	var o outcome
	if json.Unmarshal(result, &o) == nil {
		data["reason"], data["by"] = o.Reason, o.Reviewer
	}
	return "item.decided", data, nil
}
