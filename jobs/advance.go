package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"muster/jobs/pipeline"
	"muster/tasks"
	"muster/tasks/workqueue"
)

// advance does what a job needs next, if anything: it completes the node of its workflow that waits, or ends what a job
// that has ended left behind. It may be called at any time, by many processes.
func (s *flow) advance(ctx context.Context, id string) error {
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
func (s *flow) advanceFrom(ctx context.Context, id string, r record) error {
	switch {
	case r.status().Terminal():
		return s.close(ctx, id, r)
	case r["kind"] != KindPipeline:
		_, err := s.reader.follow(ctx, id, r)
		return err
	case r["cron"] != "":
		return nil
	case r["phase"] == "":
		return s.unsent(ctx, id, r)
	case r["phase"] == "start":
		return s.afterOthers(ctx, id, r)
	case r["phase"] == phaseFinish:
		done, err := s.complete(ctx, id, r)
		if err != nil || !done {
			return err
		}
		return s.answer(ctx, id, r["node"])
	}
	return s.segment(ctx, id, r)
}

// unsent sends a job whose sender died. A job whose workflow has ended without it fails.
func (s *flow) unsent(ctx context.Context, id string, r record) error {
	p, err := r.pipeline()
	if err != nil {
		return err
	}
	status, err := tasks.Attach[string](s.cfg.Client, id).Status(ctx)
	if errors.Is(err, tasks.ErrUnknown) {
		return s.send(ctx, id, p, r.time("at"), r.headers())
	}
	if err != nil || !status.Terminal() {
		return err
	}
	return s.end(ctx, id, r, Failed, "job.failed", "its workflow ended before it began: "+string(status))
}

// afterOthers begins a job once the jobs that it comes after have ended.
func (s *flow) afterOthers(ctx context.Context, id string, r record) error {
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
			return nil
		case status != Completed && r["on_failure"] != OnFailureRun:
			return s.end(ctx, id, r, Cancelled, "job.cancelled", fmt.Sprintf("job %s, which it comes after, is %s", other, status))
		}
	}
	return s.answer(ctx, id, r["node"])
}

// segment completes a segment whose work has ended.
func (s *flow) segment(ctx context.Context, id string, r record) error {
	p, err := r.pipeline()
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(r["phase"])
	parts := segments(p)
	if err != nil || n < 0 || n >= len(parts) {
		return s.end(ctx, id, r, Failed, "job.failed", fmt.Sprintf("its record is damaged: phase %.20q", r["phase"]))
	}
	open, failure, err := s.openStages(ctx, id, parts[n])
	if err != nil {
		return err
	}
	if len(open) == 0 && n > 0 {
		// Retry can give items of the segments before new attempts.
		if open, failure, err = s.openStages(ctx, id, slices.Concat(parts[:n+1]...)); err != nil {
			return err
		}
	}
	for _, st := range parts[n][:max(0, len(parts[n])-len(open))] {
		if r["done:"+st.Name] != "" {
			continue
		}
		if _, err := s.note(ctx, id, "done:"+st.Name, "stage.completed", `{"stage":`+encode(st.Name)+`}`); err != nil {
			return err
		}
	}
	if failure != "" {
		return s.end(ctx, id, r, Failed, "job.failed", failure)
	}
	if len(open) > 0 {
		return nil
	}
	return s.answer(ctx, id, r["node"])
}

// openStages returns the stages that have work left and those behind them, and why the job has failed, if it has. The
// stages are of segments of which all but the last have been completed.
func (s *flow) openStages(ctx context.Context, id string, stages []pipeline.Stage) (open []pipeline.Stage, failure string, err error) {
	q := s.queue(id)
	// The stages that add items are read first: once they have ended, no item is added.
	for i, st := range stages {
		if st.Takes != pipeline.TakesJob {
			continue
		}
		infos, err := q.Get(ctx, stageID(st.Name))
		if err != nil {
			return nil, "", err
		}
		if len(infos) == 0 || !infos[0].State.Terminal() {
			return stages[i:], "", nil
		}
		if infos[0].State == workqueue.StateError {
			return stages[i:], fmt.Sprintf("stage %s failed: %s", st.Name, infos[0].Note), nil
		}
	}
	lanes, err := q.LaneStats(ctx)
	if err != nil {
		return nil, "", err
	}
	for i, st := range stages {
		n := lanes[lane(st.Name)]
		if st.Takes == pipeline.TakesItem && (n.Queued+n.InProgress > 0 || st.Review && n.Error > 0) {
			return stages[i:], "", nil
		}
	}
	return nil, "", nil
}

// answer completes the node of a job's workflow that waits.
func (s *flow) answer(ctx context.Context, id, node string) error {
	token, err := s.cfg.Client.NewToken(ctx, id, node)
	if err == nil {
		err = s.cfg.Client.Complete(ctx, token, json.RawMessage(encode(id)))
	}
	switch {
	case err == nil, errors.Is(err, tasks.ErrCompleted), errors.Is(err, tasks.ErrStale):
		return nil
	case errors.Is(err, tasks.ErrNotOpen): // its handler is about to return
		return s.later(ctx, id, 50*time.Millisecond)
	case errors.Is(err, tasks.ErrUnknown):
		r, err := s.read(ctx, id)
		if err != nil || r.status().Terminal() {
			return err
		}
		return s.end(ctx, id, r, Failed, "job.failed", "its workflow is not in Redis any more")
	}
	return err
}

// complete ends a job whose stages have all been completed. It reports false if an item was given new attempts
// meanwhile: the job continues then.
func (s *flow) complete(ctx context.Context, id string, r record) (bool, error) {
	p, err := r.pipeline()
	if err != nil {
		return false, err
	}
	open, _, err := s.openStages(ctx, id, p.Stages)
	if err != nil || len(open) > 0 {
		return false, err
	}
	// From here on no item can be given new attempts; some may have been just now.
	if err := s.queue(id).Seal(ctx); err != nil {
		return false, err
	}
	open, failure, err := s.openStages(ctx, id, p.Stages)
	if err == nil {
		err = s.tellEndings(ctx, id) // before the event of the end
	}
	switch {
	case err != nil:
		return false, err
	case failure != "":
		return true, s.end(ctx, id, r, Failed, "job.failed", failure)
	case len(open) > 0:
		return false, s.unseal(ctx, id) // the sweep announces the work
	}
	return true, s.end(ctx, id, r, Completed, "job.completed", "")
}

// unseal ends the sealing of the queue of a job that continues. The queue of a job that has ended meanwhile stays sealed.
func (s *store) unseal(ctx context.Context, id string) error {
	if err := s.queue(id).Unseal(ctx); err != nil {
		return err
	}
	r, err := s.read(ctx, id)
	if err != nil || !r.status().Terminal() {
		return err
	}
	return s.queue(id).Seal(ctx)
}

// end moves a job to a terminal state. It does nothing if the job has ended. What follows from that is done by finalize
// and close, which the list of jobs to advance repeats if this process dies.
func (s *flow) end(ctx context.Context, id string, r record, to Status, event, message string) error {
	j, err := r.job(id)
	if err == nil {
		err = s.reader.fill(ctx, &j, r, false, nil)
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
	err = s.move(ctx, id, to, []Status{Created, Processing}, event, string(data), fields...)
	if errors.Is(err, ErrTerminal) {
		return nil
	}
	if err != nil {
		return err
	}
	s.cfg.Logger.InfoContext(ctx, "a job has ended", "job", id, "status", to, "error", message)
	s.soon()
	if err := s.finalize(ctx, id); err != nil {
		s.cfg.Logger.WarnContext(ctx, "the work of a job that has ended is stopped soon", "job", id, "err", err)
	}
	return nil
}

// finalize stops the work of a job that has ended, and then stores its stages and counts: from here on they do not
// change.
func (s *flow) finalize(ctx context.Context, id string) error {
	r, err := s.read(ctx, id)
	if err != nil || r["final"] != "" {
		return err
	}
	q := s.queue(id)
	if err := q.Seal(ctx); err != nil {
		return err
	}
	if err := s.tellEndings(ctx, id); err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	j, err := r.job(id)
	if err != nil {
		return err
	}
	if err := s.reader.fill(ctx, &j, r, false, nil); err != nil {
		return err
	}
	raw, err := json.Marshal(final{Stages: j.Stages, Items: j.Items})
	if err != nil {
		return err
	}
	reply, err := s.run(ctx, "end job "+id, "final", []string{recordKey(id), itemsKey, reviewsKey}, raw, j.Items.tally(), id)
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

// ended is what becomes of the state of a stage when its job ends.
func (st *Stage) ended(with Status) {
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

// close ends the work and the workflow of a job that has ended.
func (s *flow) close(ctx context.Context, id string, r record) error {
	if r["kind"] == KindPipeline {
		if err := s.finalize(ctx, id); err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		if err := s.closeWorkflow(ctx, id, r); err != nil && !errors.Is(err, tasks.ErrUnknown) {
			return err
		}
	}
	return s.rdb.ZRem(ctx, todoKey, id).Err()
}

func (s *flow) closeWorkflow(ctx context.Context, id string, r record) error {
	status, err := tasks.Attach[string](s.cfg.Client, id).Status(ctx)
	switch {
	case err != nil || status.Terminal():
		return err
	case r.status() != Completed:
		return s.cfg.Client.Revoke(ctx, id)
	case r["phase"] == phaseFinish:
		return s.answer(ctx, id, r["node"])
	}
	return nil
}

// move changes the state of a job; see lua/move.lua. Its errors are ErrTerminal and ErrNotFound.
func (s *store) move(ctx context.Context, id string, to Status, from []Status, event, data string, fields ...any) error {
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
	keys = append(keys, dayKey(now), todoKey, cronKey, dependentsKey(id), tookKey, pendingKey)
	reply, err := s.run(ctx, "change job "+id, "move", keys, append([]any{id, statusPrefix, allowed, string(to), ended, event, data, JobBounds.Text()}, fields...)...)
	if err != nil {
		return err
	}
	switch toInt(reply[0]) {
	case -1:
		return fmt.Errorf("%w: %s", ErrNotFound, id)
	case 0:
		return fmt.Errorf("%w: it is %s", ErrTerminal, toString(reply[1]))
	}
	return nil
}

// note sets fields of a job that has not ended, and appends an event; see lua/note.lua. It reports whether it did.
func (s *store) note(ctx context.Context, id, once, event, data string, fields ...any) (bool, error) {
	keys := append([]string{recordKey(id)}, s.eventKeys(id)...)
	reply, err := s.run(ctx, "change job "+id, "note", keys, append([]any{id, once, event, data}, fields...)...)
	if err != nil {
		return false, err
	}
	return toInt(reply[0]) == 1, nil
}

// later makes some process advance a job after d.
func (s *store) later(ctx context.Context, id string, d time.Duration) error {
	if _, err := s.run(ctx, "advance job "+id, "later", []string{todoKey}, id, d.Milliseconds()); err != nil {
		return err
	}
	s.soon()
	return nil
}

// soon wakes Run in this process.
func (s *store) soon() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// ready notes that a job may have work for a role or Go task in d.
func (s *store) ready(ctx context.Context, id, worker string, d time.Duration) error {
	_, err := s.run(ctx, "announce work", "ready", []string{recordKey(id), readyKey(worker), dueKey(worker)}, id, d.Milliseconds(), workChannel, worker)
	return err
}
