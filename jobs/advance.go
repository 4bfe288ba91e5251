package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"muster/internal/tracing"
	"muster/jobs/pipeline"
	"muster/tasks/workqueue"
)

// advance does the next step of a job, if it is due: it starts a job, opens its next stage,
// ends it, or stops the work of a job that has ended. Each step may be repeated, by many processes at once.
func (s *Service) advance(ctx context.Context, id string) error {
	r, err := s.read(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return s.rdb.ZRem(ctx, todoKey, id).Err()
	}
	if err != nil {
		return err
	}
	return s.advanceFrom(ctx, id, r)
}

// advanceFrom is advance of a job whose record was just read.
func (s *Service) advanceFrom(ctx context.Context, id string, r record) error {
	switch {
	case r.status().Terminal():
		return s.close(ctx, id, r)
	case r.status() == Created && r["paused"] != "":
		return nil
	case r.status() == Created:
		return s.start(ctx, id, r)
	}
	return s.work(ctx, id, r)
}

// start starts a job once its time has come and its dependencies have ended.
func (s *Service) start(ctx context.Context, id string, r record) error {
	now, err := s.now(ctx)
	if err != nil {
		return err
	}
	if wait := r.time("at").Sub(now); wait > 0 && r["at"] != "" {
		return s.later(ctx, id, wait)
	}
	for _, other := range r.list("after") {
		status := Status(r["after:"+other]) // of a deleted one
		if before, err := s.read(ctx, other); err == nil {
			status = before.status()
		} else if !errors.Is(err, ErrNotFound) {
			return err
		} else if status == "" {
			if r, err = s.read(ctx, id); err != nil { // it may have been deleted since this one was read
				return err
			}
			status = cmp.Or(Status(r["after:"+other]), Completed)
		}
		switch {
		case !status.Terminal():
			return nil // its end advances this job
		case status != Completed && r["on_failure"] != OnFailureRun:
			return s.end(ctx, id, r, Cancelled, "job.cancelled", fmt.Sprintf("dependency %s is %s", other, status))
		}
	}
	if err := s.move(ctx, id, Processing, []Status{Created}, anyTime, "job.started", ""); err != nil {
		if errors.Is(err, ErrTerminal) || errors.Is(err, ErrNotFound) {
			return nil
		}
		return err
	}
	return s.work(ctx, id, r)
}

// work notes the stages that have ended, opens the next one, and ends the job after the last.
func (s *Service) work(ctx context.Context, id string, r record) error {
	p, err := s.pipeline(ctx, r)
	if err != nil {
		return err
	}
	at, failure, err := s.current(ctx, id, p.Stages)
	if err != nil {
		return err
	}
	for _, st := range p.Stages[:at.stage] {
		if r["done:"+st.Name] != "" {
			continue
		}
		if _, err := s.note(ctx, id, "done:"+st.Name, "stage.completed", `{"stage":`+encode(st.Name)+`}`); err != nil {
			return err
		}
	}
	switch {
	case failure != "":
		return s.end(ctx, id, r, Failed, "job.failed", failure)
	case at.stage == len(p.Stages):
		return s.complete(ctx, id, r)
	case at.unopened:
		return s.openStage(ctx, id, p.Stages[at.stage])
	}
	return nil
}

// openStage makes the work of a stage that takes the job.
func (s *Service) openStage(ctx context.Context, id string, st pipeline.Stage) error {
	_, err := s.queue(id).Enqueue(ctx, workqueue.Item{
		ID: stageID(st.Name), Kind: st.Name, ResourceKeys: []string{lane(st.Name)}, MaxAttempts: s.attempts(st), Payload: []byte("{}"),
	})
	if errors.Is(err, workqueue.ErrSealed) {
		return nil // the job has ended
	}
	if err != nil {
		return err
	}
	return s.announceWork(ctx, id, st.Worker(), 0)
}

// attempts returns how often a stage may try an item: the first attempt and the retries.
func (s *Service) attempts(st pipeline.Stage) int {
	if st.MaxRetries != nil {
		return 1 + *st.MaxRetries
	}
	return 1 + s.limits.Load().MaxRetries
}

// stageID and itemID are the ids in the work queue.
func stageID(name string) string { return "stage/" + name }
func itemID(key string) string   { return "item/" + key }

// lane is the resource key of the items of a stage.
func lane(stage string) string { return "stage:" + stage }

// emittedLane is the resource key of the items that a stage emits and no stage takes.
func emittedLane(stage string) string { return "emitted:" + stage }

// position is how far a job is.
type position struct {
	stage    int  // the first stage with work left; the number of stages if there is none
	unopened bool // the stage takes the job, and its work has not been made
}

// current returns the position of a job, and why it has failed, if it has.
func (s *Service) current(ctx context.Context, id string, stages []pipeline.Stage) (at position, failure string, err error) {
	var ids []string
	for _, st := range stages {
		if st.Takes == pipeline.TakesJob {
			ids = append(ids, stageID(st.Name))
		}
	}
	// The stages that add items are read before the counts: once they have ended, no item is added.
	all, err := workqueue.Glances(ctx, workqueue.Wanted{Queue: s.queue(id), IDs: ids})
	if err != nil {
		return at, "", err
	}
	work, lanes := map[string]workqueue.Info{}, all[0].Lanes
	for _, info := range all[0].Items {
		work[info.ID] = info
	}
	open := false
	for i, st := range stages {
		info, made := work[stageID(st.Name)]
		n := lanes[lane(st.Name)]
		switch {
		case st.Takes == pipeline.TakesJob && info.State == workqueue.StateError:
			failure = fmt.Sprintf("stage %s failed: %s", st.Name, info.Note)
		case st.Takes == pipeline.TakesJob && made && info.State.Terminal(), st.Takes == pipeline.TakesItem && n.Queued+n.InProgress == 0 && !(st.Review && n.Error > 0):
			continue
		}
		if !open {
			open, at = true, position{i, st.Takes == pipeline.TakesJob && !made}
		}
	}
	if !open {
		at.stage = len(stages)
	}
	return at, failure, nil
}

// complete ends a job whose stages have all been completed. If an item was given new attempts meanwhile, the job continues.
func (s *Service) complete(ctx context.Context, id string, r record) error {
	p, err := s.pipeline(ctx, r)
	if err != nil {
		return err
	}
	// From here on no item can be given new attempts; some may have been just now.
	if err := s.queue(id).Seal(ctx); err != nil {
		return err
	}
	at, failure, err := s.current(ctx, id, p.Stages)
	if err == nil {
		err = s.tellEndings(ctx, id) // before the event of the end
	}
	switch {
	case err != nil:
		return err
	case failure != "":
		return s.end(ctx, id, r, Failed, "job.failed", failure)
	case at.stage < len(p.Stages):
		return s.unseal(ctx, id) // the sweep announces the work
	}
	return s.end(ctx, id, r, Completed, "job.completed", "")
}

// unseal ends the sealing of the queue of a job that continues. The queue of a job that has ended meanwhile stays sealed.
func (s *Service) unseal(ctx context.Context, id string) error {
	if err := s.queue(id).Unseal(ctx); err != nil {
		return err
	}
	r, err := s.read(ctx, id)
	if err != nil || !r.status().Terminal() {
		return err
	}
	return s.queue(id).Seal(ctx)
}

// end moves a job to a terminal state. It does nothing if the job has ended. The consequences are handled by finalize
// and close, which are repeated from the list of jobs to advance if this process dies.
func (s *Service) end(ctx context.Context, id string, r record, to Status, event, message string) error {
	j, err := s.job(ctx, id, r)
	if err == nil {
		err = s.fill(ctx, &j, r, false, nil)
	}
	if err != nil { // a job whose record is damaged must be able to end, too
		s.cfg.Logger.WarnContext(ctx, "a job ends without counts in its event", "job", id, "err", err)
	}
	var fields []any
	data, _ := json.Marshal(map[string]any{"items": j.Items})
	if message != "" {
		fields = append(fields, "error", message)
		data, _ = json.Marshal(map[string]any{"items": j.Items, "error": message})
	}
	if r["failed_stage"] != "" {
		fields = append(fields, "failed_stage", r["failed_stage"], "failed_stage_error", r["failed_stage_error"])
	}
	if details := detailsOf(j.Stages); to == Failed && details != "" {
		fields = append(fields, "details", details)
	}
	reopened := r["reopened"] // a value read before a retry must not end the reopened job
	if to == Cancelled {
		reopened = anyTime
	}
	err = s.move(ctx, id, to, []Status{Created, Processing}, reopened, event, string(data), fields...)
	if errors.Is(err, ErrTerminal) {
		return nil
	}
	if err != nil {
		return err
	}
	s.cfg.Logger.InfoContext(tracing.Context(ctx, r.headers()), "a job has ended", "job", id, "status", to, "error", message)
	s.wakeRun()
	if err := s.finalize(ctx, id); err != nil {
		s.cfg.Logger.WarnContext(ctx, "the work of a job that has ended is stopped soon", "job", id, "err", err)
	}
	return nil
}

// finalize stops the work of a job that has ended, and then stores its stages and counts: from here on they do not
// change.
func (s *Service) finalize(ctx context.Context, id string) error {
	r, err := s.read(ctx, id)
	if err != nil || r["final"] != "" {
		return err
	}
	q := s.queue(id)
	if err := q.Seal(ctx); err != nil {
		return err
	}
	if now, err := s.read(ctx, id); err == nil && !now.status().Terminal() { // it was reopened since r was read
		return s.unseal(ctx, id)
	} else if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	if err := s.tellEndings(ctx, id); err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	j, err := s.job(ctx, id, r)
	if err != nil {
		return err
	}
	if err := s.fill(ctx, &j, r, false, nil); err != nil {
		return err
	}
	for i := range j.Stages {
		j.Stages[i].Result = nil // the queue keeps it
	}
	raw, err := json.Marshal(final{Stages: j.Stages, Items: j.Items})
	if err != nil {
		return err
	}
	reply, err := s.run(ctx, "end job "+id, "tally", []string{recordKey(id), itemsKey, reviewsKey}, j.Items.tally(), id, raw, r["ended"])
	if err == nil && toInt(reply[0]) == 0 {
		err = q.Delete(ctx) // the job was deleted meanwhile, and sealing has left a key
	}
	return err
}

// detailsOf is the stages of a job that had errors, as JSON, or "".
func detailsOf(stages []Stage) string {
	type failure struct {
		Stage    string `json:"stage"`
		Agent    string `json:"agent,omitempty"`
		Attempts int    `json:"attempts,omitempty"`
		Error    string `json:"error"`
	}
	var list []failure
	for _, st := range stages {
		if st.Error != "" {
			list = append(list, failure{st.Name, st.Agent, st.Attempts, st.Error})
		}
	}
	if len(list) == 0 {
		return ""
	}
	return encode(map[string]any{"stages": list})
}

// setEndState sets the state of a stage whose job has ended.
func (st *Stage) setEndState(with Status) {
	if st.Status == StageCompleted || st.Status == StageFailed {
		return
	}
	switch with {
	case Completed:
		st.Status = StageCompleted
	case Cancelled:
		st.Status = StageCancelled
	case Failed:
		if st.Status == StageProcessing {
			st.Status = StageFailed
		}
	}
}

// close stops the work of a job that has ended.
func (s *Service) close(ctx context.Context, id string, r record) error {
	if err := s.finalize(ctx, id); err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	return s.rdb.ZRem(ctx, todoKey, id).Err()
}

// anyTime matches any time of the last reopening.
const anyTime = "*"

// move changes the state of a job that was last reopened at a time; see lua/move.lua. Its errors are ErrTerminal and
// ErrNotFound.
func (s *Service) move(ctx context.Context, id string, to Status, from []Status, reopened, event, data string, fields ...any) error {
	allowed := " "
	for _, st := range from {
		allowed += string(st) + " "
	}
	now, err := s.now(ctx)
	if err != nil {
		return err
	}
	ended := ""
	if to.Terminal() {
		ended = endedPrefix
	}
	keys := append([]string{recordKey(id)}, s.eventKeys(id)...)
	keys = append(keys, dayKey(now), todoKey, dependentsKey(id))
	reply, err := s.run(ctx, "change job "+id, "move", keys, append([]any{id, statusPrefix, allowed, string(to), ended, event, data, reopened}, fields...)...)
	if err != nil {
		return err
	}
	switch toInt(reply[0]) {
	case -1:
		return fmt.Errorf("%w: %s", ErrNotFound, id)
	case 0:
		return fmt.Errorf("%w: it is %s", ErrTerminal, toString(reply[1]))
	}
	if ms, err := strconv.ParseInt(toString(reply[2]), 10, 64); err == nil && s.cfg.Took != nil {
		s.cfg.Took("job", string(to), time.Duration(ms)*time.Millisecond)
	}
	return nil
}

// note sets fields of a job that has not ended, and appends an event; see lua/note.lua. It reports whether it did.
func (s *Service) note(ctx context.Context, id, once, event, data string, fields ...any) (bool, error) {
	keys := append([]string{recordKey(id)}, s.eventKeys(id)...)
	reply, err := s.run(ctx, "change job "+id, "note", keys, append([]any{id, once, event, data}, fields...)...)
	if err != nil {
		return false, err
	}
	return toInt(reply[0]) == 1, nil
}

// later makes some process advance a job after d.
func (s *Service) later(ctx context.Context, id string, d time.Duration) error {
	if _, err := s.run(ctx, "advance job "+id, "later", []string{todoKey}, id, d.Milliseconds()); err != nil {
		return err
	}
	s.wakeRun()
	return nil
}

// wakeRun wakes Run in this process.
func (s *Service) wakeRun() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// announceWork notes that a job may have work for a role or Go task in d.
func (s *Service) announceWork(ctx context.Context, id, worker string, d time.Duration) error {
	return s.announceAt(ctx, id, worker, d, "")
}

// announceAt is announceWork of a job whose place in the ready list is known, unless it is "".
func (s *Service) announceAt(ctx context.Context, id, worker string, d time.Duration, place string) error {
	_, err := s.run(ctx, "announce work", "ready", []string{recordKey(id), readyKey(worker), dueKey(worker), wakeKey(worker)}, id, d.Milliseconds(), place)
	return err
}

// Work is a leased item or stage of a job: the unit that an agent processes. Its fields can be stored, and passed to
// the methods of Service.
type Work struct {
	JobID    string    `json:"job_id"`
	Stage    string    `json:"stage"`
	Role     string    `json:"role"`  // or "task:NAME"
	Takes    string    `json:"takes"` // pipeline.TakesJob or pipeline.TakesItem
	Agent    string    `json:"agent"` // the id that holds it
	Nonce    string    `json:"nonce"` // random part of its lease
	Attempt  int       `json:"attempt"`
	Retried  int       `json:"retried"` // how often the item got new attempts after it had failed
	Fence    int64     `json:"fence"`   // of this lease; a later one of the same item is higher
	Begun    time.Time `json:"begun"`   // when the lease was taken, by the clock of Redis
	Expires  time.Time `json:"lease_until"`
	Deadline time.Time `json:"deadline"` // after which it is given to another; by the clock of Redis
	Key      string    `json:"key"`      // of the item; "" for a stage that takes the job
	Prompt   string    `json:"prompt"`   // its beginning, if PromptSHA256 is set
	// PromptSHA256 is set if the prompt is above MaxInline; Service.Input returns it.
	PromptSHA256 string          `json:"prompt_sha256,omitempty"`
	Context      json.RawMessage `json:"context"` // empty if ContextSHA256 is set
	// ContextSHA256 is set if the context is above MaxInline; Service.Input returns it.
	ContextSHA256 string    `json:"context_sha256,omitempty"`
	Document      *Document `json:"document,omitempty"`
	Item          *Item     `json:"item,omitempty"` // of a stage that takes items

	// Results are the results of earlier stages that took the job, by stage. One above MaxInline is left out.
	Results map[string]json.RawMessage `json:"results,omitempty"`

	// Headers are the headers of the job: its trace, and the id of the request that created it; see package tracing.
	Headers map[string]string `json:"headers,omitempty"`

	// Done means that this lease has completed the work.
	Done bool `json:"done,omitempty"`

	// QueueItem is the id of the work in the queue of the job.
	QueueItem string `json:"queue_item"`
}

// Answer is the result of an agent's work.
type Answer struct {
	// Items are added before the work ends; only by a stage that takes the job.
	Items []NewItem
	// Verdict is one of the stage's states, as accept or reject; empty means accept.
	Verdict string
	Reason  string // why it was rejected
	// Patch are fields of the item to set, as in an Item in JSON; for a stage that takes the job it is its
	// result, any JSON.
	Patch json.RawMessage
	Usage map[string]int64 // usage of the work, as in {"requests": 2, "tokens": 1500}
}
