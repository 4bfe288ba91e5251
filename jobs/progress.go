package jobs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Progress returns how far a job is.
func (s *Service) Progress(ctx context.Context, id string) (Progress, error) {
	_, p, err := s.look(ctx, id, true)
	return p, err
}

// Look returns a job and how far it is, both of one moment.
func (s *Service) Look(ctx context.Context, id string) (Job, Progress, error) {
	return s.look(ctx, id, false)
}

// look is Look for a job that may be brief; see whole.
func (s *Service) look(ctx context.Context, id string, brief bool) (Job, Progress, error) {
	r, err := s.read(ctx, id)
	if err != nil {
		return Job{}, Progress{}, err
	}
	j, err := s.whole(ctx, id, r, brief, nil)
	if err != nil {
		return Job{}, Progress{}, err
	}
	p, err := s.progress(ctx, j, r)
	return j, p, err
}

func (s *Service) progress(ctx context.Context, j Job, r record) (Progress, error) {
	now, err := s.now(ctx)
	if err != nil {
		return Progress{}, err
	}
	p := Progress{JobID: j.ID, Kind: j.Kind, Status: j.Status, Stages: j.Stages, Items: j.Items, Waiting: j.Waiting}
	if j.Items.Total > 0 {
		p.Percent = math.Round(1000*float64(j.Items.Processed())/float64(j.Items.Total)) / 10
	}
	end := now
	if !j.CompletedAt.IsZero() {
		end = j.CompletedAt
	}
	begun := j.StartedAt
	if begun.IsZero() {
		begun = j.CreatedAt
	}
	p.ElapsedSeconds = seconds(max(0, end.Sub(begun)))
	if j.Status.Terminal() {
		return p, nil
	}
	p.setPace()
	if stuck, is := s.stuck(j, r, now); is {
		p.Stuck = &stuck
	}
	return p, nil
}

// setPace sets the pace and the ETA by the items that have ended so far.
func (p *Progress) setPace() {
	ended := float64(p.Items.Processed())
	if ended == 0 || p.ElapsedSeconds <= 0 {
		return
	}
	p.PerMinute = math.Round(600*ended/p.ElapsedSeconds) / 10
	left := math.Round(10*p.ElapsedSeconds/ended*float64(p.Items.Pending+p.Items.Validating)) / 10
	p.ETASeconds = &left
}

// stuck reports whether a job has made no progress for its threshold, and where and why.
func (s *Service) stuck(j Job, r record, now time.Time) (Stuck, bool) {
	since := r.time("progressed")
	if j.Status != Processing || j.Paused || since.IsZero() || now.Sub(since) < j.StuckAfter {
		return Stuck{}, false
	}
	// An agent that has come has StuckAfter: sweeps note at intervals of half of it that the job waits.
	if j.Waiting == "" && now.Sub(r.time("waited")) < j.StuckAfter*3/2 {
		return Stuck{}, false
	}
	st := Stuck{JobID: j.ID, Name: j.Name, Since: since, Recoveries: j.Recoveries}
	var stages, reasons []string
	for _, stage := range j.Stages {
		busy := stage.Pending+stage.Processing > 0 || stage.Takes == "job" && stage.Status != StageCompleted
		if !busy || stage.Takes == "job" && len(stages) > 0 {
			continue
		}
		stages = append(stages, stage.Name)
		switch {
		case stage.Takes == "job" && stage.Agent != "":
			reasons = append(reasons, fmt.Sprintf("agent %s holds stage %s and neither ends it nor adds items", stage.Agent, stage.Name))
		case stage.Processing > 0:
			reasons = append(reasons, fmt.Sprintf("%d items of stage %s are held and do not end", stage.Processing, stage.Name))
		default:
			reasons = append(reasons, fmt.Sprintf("the work of stage %s is not taken", stage.Name))
		}
	}
	if len(stages) == 0 {
		return Stuck{}, false // it waits for a person
	}
	st.Stage, st.Reason = strings.Join(stages, ", "), strings.Join(reasons, "; ")
	if j.Waiting != "" {
		st.Reason = j.Waiting
	}
	return st, true
}

// Stuck lists the jobs without progress for their threshold, in descending order of that time.
func (s *Service) Stuck(ctx context.Context) ([]Stuck, error) {
	list := []Stuck{}
	now, err := s.now(ctx)
	if err != nil {
		return nil, err
	}
	err = s.eachOpen(ctx, Processing, func(id string, r record) error {
		if since := r.time("progressed"); since.IsZero() || now.Sub(since) < r.millis("stuck_after") {
			return nil
		}
		j, err := s.whole(ctx, id, r, true, nil)
		if err != nil {
			return err
		}
		if st, is := s.stuck(j, r, now); is {
			list = append(list, st)
		}
		return nil
	})
	slices.SortFunc(list, func(a, b Stuck) int { return a.Since.Compare(b.Since) })
	return list, err
}

// eachOpen calls fn with the records of all jobs in a state.
func (s *Service) eachOpen(ctx context.Context, in Status, fn func(id string, r record) error) error {
	for cursor := ""; ; {
		found, _, err := s.below(ctx, []string{statusKey(in)}, cursor, listChunk)
		if err != nil || len(found) == 0 {
			return err
		}
		ids := idsOf(found)
		records, err := s.records(ctx, ids)
		if err != nil {
			return err
		}
		for i, r := range records {
			if r["seq"] == "" || r.status() != in {
				continue
			}
			if err := fn(ids[i], r); err != nil && !errors.Is(err, ErrNotFound) {
				return err
			}
		}
		cursor = found[len(found)-1].seq
	}
}

// seconds returns d in seconds, rounded to milliseconds.
func seconds(d time.Duration) float64 {
	return float64(d.Round(time.Millisecond).Milliseconds()) / 1000
}
