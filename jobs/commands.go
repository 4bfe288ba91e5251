package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"muster/internal/wrap"
	"muster/jobs/pipeline"
	"muster/tasks/workqueue"
)

// Cancel ends a job: waiting work is not started, working agents find out with their next call, and ended items
// stay. With cleanup its document is removed, unless another job has it; cleaned reports whether it was. It returns
// ErrTerminal for a job that has ended, and ErrNotFound.
func (s *Service) Cancel(ctx context.Context, id string, cleanup bool) (j Job, cleaned bool, err error) {
	r, err := s.read(ctx, id)
	if err != nil {
		return Job{}, false, err
	}
	if r.status().Terminal() {
		return Job{}, false, fmt.Errorf("%w: it is %s", ErrTerminal, r.status())
	}
	if err := s.end(ctx, id, r, Cancelled, "job.cancelled", ""); err != nil {
		return Job{}, false, err
	}
	if err := s.advance(ctx, id); err != nil {
		s.cfg.Logger.WarnContext(ctx, "the next sweep stops the work of a cancelled job", "job", id, "err", err)
	}
	if cleanup {
		if cleaned, err = s.dropDocument(ctx, id, r.document()); err != nil {
			return Job{}, false, err
		}
	}
	j, err = s.Get(ctx, id)
	return j, cleaned, err
}

// dropDocument removes the document of a job that has ended, unless another job has it. It reports whether it did.
func (s *Service) dropDocument(ctx context.Context, id string, d *Document) (bool, error) {
	if d == nil || s.cfg.Documents == nil {
		return false, nil
	}
	if err := s.rdb.SRem(ctx, documentKey(d.Hash), id).Err(); err != nil {
		return false, fmt.Errorf("remove the document of job %s: %w", id, err)
	}
	return s.removeDocument(ctx, d.Hash)
}

// removeDocument removes a document unless a job has it. A job that is created meanwhile keeps it, or learns that it is
// gone: Create looks for it after the job has registered its use, and this looks for uses after it cannot be opened.
func (s *Service) removeDocument(ctx context.Context, hash string) (removed bool, err error) {
	unused := func() (bool, error) {
		n, err := s.rdb.SCard(ctx, documentKey(hash)).Result()
		removed = n == 0
		return removed, err
	}
	if ok, err := unused(); err != nil || !ok {
		return false, err
	}
	err = s.cfg.Documents.Remove(hash, unused)
	return removed && err == nil, err
}

// HasDocument reports whether a job has the document with a hash.
func (s *Service) HasDocument(ctx context.Context, hash string) (bool, error) {
	n, err := s.rdb.Exists(ctx, documentKey(hash)).Result()
	return n > 0, wrap.Err(err, "read the jobs of a document")
}

// Rerun creates the next version of a job, with the same request.
func (s *Service) Rerun(ctx context.Context, id string) (Job, error) {
	j, err := s.Get(ctx, id)
	if err != nil {
		return Job{}, err
	}
	next, _, err := s.Create(ctx, Request{
		Pipeline: j.Name, Prompt: j.Prompt, Document: j.Document, Context: j.Context, Priority: j.Priority, Labels: j.Labels,
		StuckAfter: j.StuckAfter, VersionOf: id, Dedupe: DedupeAllow,
	})
	return next, err
}

// CompleteStage ends a stage of a running job by hand: with failure "" it is completed, and its waiting items are
// rejected; else the job fails with this text. Agents that work on the stage lose their leases. Items that failed and
// wait for another attempt stay; end the stage again when they are due.
func (s *Service) CompleteStage(ctx context.Context, id, stage, failure string) (Job, error) {
	if err := text("error", failure, MaxItem); err != nil {
		return Job{}, err
	}
	r, err := s.read(ctx, id)
	if err != nil {
		return Job{}, err
	}
	if r.status().Terminal() {
		return Job{}, fmt.Errorf("%w: it is %s", ErrTerminal, r.status())
	}
	p, err := s.planOf(ctx, id)
	if err != nil {
		return Job{}, err
	}
	if p.Stage(stage) == nil {
		return Job{}, bad("stage", "job %s has no stage %.40q", id, stage)
	}
	if failure != "" {
		j, err := s.Get(ctx, id)
		if err != nil {
			return Job{}, err
		}
		if slices.ContainsFunc(j.Stages, func(st Stage) bool { return st.Name == stage && st.Status == StageCompleted }) {
			return Job{}, fmt.Errorf("%w: %s is completed", ErrStageEnded, stage)
		}
		r["failed_stage"] = stage
		r["failed_stage_error"] = failure
		if err := s.end(ctx, id, r, Failed, "job.failed", "stage "+stage+" failed: "+failure); err != nil {
			return Job{}, err
		}
		return s.Get(ctx, id)
	}
	if err := s.skipStage(ctx, id, *p.Stage(stage)); err != nil {
		return Job{}, err
	}
	s.advanceAfter(ctx, id, pipeline.Stage{})
	return s.Get(ctx, id)
}

// skipStage ends the waiting work of a stage.
func (s *Service) skipStage(ctx context.Context, id string, st pipeline.Stage) error {
	const who = "operator"
	q := s.queue(id)
	outcome := workqueue.Skipped("the stage was ended by hand")
	if st.Takes == pipeline.TakesJob {
		outcome = workqueue.Done()
	}
	lanes, err := q.LaneStats(ctx)
	if err != nil {
		return err
	}
	if lanes[lane(st.Name)].InProgress > 0 { // sealing ends all leases; agents lease the work of other stages again
		if err := errors.Join(q.Seal(ctx), q.Unseal(ctx)); err != nil {
			return err
		}
		if err := s.announceAll(ctx, id); err != nil {
			return err
		}
	}
	for {
		batch, err := q.LeaseWithin(ctx, who, 100, workqueue.Budget{Left: map[string]int{lane(st.Name): 100}})
		if err != nil {
			return err
		}
		for _, it := range batch.Items {
			if err := q.Settle(ctx, it, outcome); err != nil {
				return asLeaseLost(err)
			}
		}
		if len(batch.Items) == 0 {
			return nil
		}
	}
}

// announceAll announces that every stage of a job may have work.
func (s *Service) announceAll(ctx context.Context, id string) error {
	p, err := s.plan(ctx, id)
	if err != nil {
		return err
	}
	for _, st := range p.Stages {
		if err := s.announceWork(ctx, id, st.Worker(), 0); err != nil {
			return err
		}
	}
	return nil
}

// Edit changes a job that has not ended, if it still has the version. It returns ErrStale, ErrTerminal, ErrNotFound or
// a *FieldError.
func (s *Service) Edit(ctx context.Context, id string, version int64, e Edit) (Job, error) {
	r, err := s.read(ctx, id)
	if err != nil {
		return Job{}, err
	}
	p, err := s.pipeline(ctx, r)
	if err != nil {
		return Job{}, err
	}
	if err := s.addLarge(ctx, id, r); err != nil {
		return Job{}, err
	}
	labels, context := r.list("labels"), json.RawMessage(r["context"])
	leaves := soft(p, labels, context)
	var fields []any
	large := ""
	if e.Priority != nil {
		if *e.Priority < -MaxPriority || *e.Priority > MaxPriority {
			return Job{}, bad("priority", "%d is not within ±%d", *e.Priority, MaxPriority)
		}
		fields = append(fields, "priority", *e.Priority)
	}
	if e.Context != nil {
		if context, err = canonical("context", e.Context, MaxContext); err != nil {
			return Job{}, err
		}
		inline, whole, hash := splitContext(context)
		large = whole
		fields = append(fields, "context", inline, "context_sha256", hash)
	}
	if e.Labels != nil {
		if err := checkLabels(*e.Labels); err != nil {
			return Job{}, err
		}
		labels = *e.Labels
		fields = append(fields, "labels", encode(labels))
	}
	if len(fields) == 0 {
		return s.Get(ctx, id)
	}
	enters := soft(p, labels, context)
	keys := append([]string{recordKey(id)}, s.eventKeys(id)...)
	keys = slices.Concat(append(keys, largeContextKey(id)), leaves, enters)
	reply, err := s.run(ctx, "edit job "+id, "edit", keys, append([]any{id, version, "job.edited", "", len(leaves), large}, fields...)...)
	if err != nil {
		return Job{}, err
	}
	switch toInt(reply[0]) {
	case 0:
		return Job{}, fmt.Errorf("%w: version %d, not %d", ErrStale, toInt(reply[1]), version)
	case -1:
		return Job{}, fmt.Errorf("%w: %s", ErrNotFound, id)
	case -2:
		return Job{}, ErrTerminal
	}
	return s.Get(ctx, id)
}

// Delete removes a job that has ended, with its items, events and, unless another job has it, its document. It returns
// ErrNotEnded for a job that has not.
func (s *Service) Delete(ctx context.Context, id string) error {
	r, err := s.read(ctx, id)
	if err != nil {
		return err
	}
	if !r.status().Terminal() {
		return fmt.Errorf("delete job %s: %w: it is %s", id, ErrNotEnded, r.status())
	}
	return s.remove(ctx, id, r)
}

func (s *Service) remove(ctx context.Context, id string, r record) error {
	last, err := s.drop(ctx, id, r)
	if err != nil || !last || s.cfg.Documents == nil {
		return err
	}
	_, err = s.removeDocument(ctx, r.document().Hash)
	return err
}

// drop removes a job that has ended. It reports whether no other job has its document, which stays.
func (s *Service) drop(ctx context.Context, id string, r record) (last bool, err error) {
	p, err := s.pipeline(ctx, r)
	if err != nil {
		return false, err
	}
	if err := s.queue(id).Delete(ctx); err != nil {
		return false, err
	}
	if err := s.addLarge(ctx, id, r); err != nil {
		return false, err
	}
	none := recordKey(id)
	doc := none
	if d := r.document(); d != nil {
		doc = documentKey(d.Hash)
	}
	keys := append([]string{none}, s.eventKeys(id)...)
	keys = append(keys, usageKey(id), dependentsKey(id), endedKey(r.status()), todoKey, dedupeKey(r["work"]), doc, promptKey(id), largeContextKey(id), pipelineKey(r["pipeline_sha256"]))
	keys = append(keys, indexes(p, r["name"], r.status(), r.list("labels"), json.RawMessage(r["context"]))...)
	reply, err := s.run(ctx, "delete job "+id, "remove", append(keys, reviewsKey, itemsKey), id, prefix+"j:")
	if err != nil {
		return false, err
	}
	return toInt(reply[1]) == 1, nil
}
