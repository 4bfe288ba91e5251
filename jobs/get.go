package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"muster/jobs/pipeline"
	"muster/tasks/workqueue"
)

// Get returns a job, or ErrNotFound.
func (s *Service) Get(ctx context.Context, id string) (Job, error) {
	r, err := s.read(ctx, id)
	if err != nil {
		return Job{}, err
	}
	return s.whole(ctx, id, r, false, nil)
}

// Summary returns a job without its usage, the rest of a large prompt, a large context, and the results of its stages, or
// ErrNotFound.
func (s *Service) Summary(ctx context.Context, id string) (Job, error) {
	r, err := s.read(ctx, id)
	if err != nil {
		return Job{}, err
	}
	return s.whole(ctx, id, r, true, nil)
}

// lanes are the counts of a job's stages by lane.
type lanes map[string]workqueue.Counts

// whole returns a job with its data outside its record. A brief one lacks its usage, the rest of a large prompt, a large context, and the agents
// of stages that are completed. Its counts are those given, or read if they are nil.
func (s *Service) whole(ctx context.Context, id string, r record, brief bool, counts lanes) (Job, error) {
	if !brief {
		if err := s.addLarge(ctx, id, r); err != nil {
			return Job{}, err
		}
	}
	j, err := r.job(id)
	if err != nil {
		return Job{}, err
	}
	if err := s.fill(ctx, &j, r, brief, counts); err != nil {
		return Job{}, err
	}
	if !brief {
		if err := s.usage(ctx, []*Job{&j}); err != nil {
			return Job{}, err
		}
	}
	if !j.Status.Terminal() {
		j.Waiting, err = s.waiting(ctx, &j, r)
	}
	return j, err
}

// fill adds the stages and counts of a job; see whole.
func (s *Service) fill(ctx context.Context, j *Job, r record, brief bool, counts lanes) error {
	if r["final"] != "" {
		var f final
		if err := json.Unmarshal([]byte(r["final"]), &f); err != nil {
			return fmt.Errorf("read how job %s ended: %w", j.ID, err)
		}
		j.Stages, j.Items = f.Stages, f.Items
		if brief {
			return nil
		}
		results, err := s.results(ctx, j.ID, j.Pipeline.Stages)
		for i := range j.Stages {
			j.Stages[i].Result = results[j.Stages[i].Name]
		}
		return err
	}
	var ids []string
	for _, st := range j.Pipeline.Stages {
		if st.Takes == pipeline.TakesJob && (!brief || r["done:"+st.Name] == "") {
			ids = append(ids, stageID(st.Name))
		}
	}
	q := s.queue(j.ID)
	infos, err := q.Get(ctx, ids...)
	if err != nil {
		return err
	}
	if counts == nil {
		if counts, err = q.LaneStats(ctx); err != nil {
			return err
		}
	}
	for _, st := range j.Pipeline.Stages {
		stage := Stage{Name: st.Name, Role: st.Role, Task: st.Task, Takes: st.Takes, Status: StagePending, CompletedAt: r.time("done:" + st.Name)}
		if st.Takes == pipeline.TakesJob {
			if i := slices.IndexFunc(infos, func(in workqueue.Info) bool { return in.ID == stageID(st.Name) }); i >= 0 {
				stage.ofJob(infos[i])
				if brief {
					stage.Result = nil
				}
			} else if !stage.CompletedAt.IsZero() {
				stage.Status = StageCompleted
			}
			j.Items.add(counts[emittedLane(st.Name)], false)
		} else {
			n := counts[lane(st.Name)]
			stage.ofItems(n)
			j.Items.add(n, st.Review)
		}
		if st.Name == r["failed_stage"] {
			stage.Status, stage.Error = StageFailed, r["failed_stage_error"]
		}
		if j.Status.Terminal() {
			stage.setEndState(j.Status)
		}
		j.Stages = append(j.Stages, stage)
	}
	return nil
}

// results returns the results of the completed stages among stages that take the job, by stage name.
func (s *Service) results(ctx context.Context, id string, stages []pipeline.Stage) (map[string]json.RawMessage, error) {
	var ids []string
	for _, st := range stages {
		if st.Takes == pipeline.TakesJob {
			ids = append(ids, stageID(st.Name))
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	all, err := s.queue(id).Results(ctx, ids...)
	if err != nil {
		return nil, err
	}
	results := map[string]json.RawMessage{}
	for i, raw := range all {
		var o outcome
		if json.Unmarshal(raw, &o) == nil && len(o.Patch) > 0 {
			results[strings.TrimPrefix(ids[i], stageID(""))] = o.Patch
		}
	}
	return results, nil
}

// ofJob sets the state of a stage that takes the job.
func (st *Stage) ofJob(info workqueue.Info) {
	st.Attempts, st.Error, st.Agent = info.Attempts, info.Note, parseHolder(info.Worker).agent
	switch info.State {
	case workqueue.StateInProgress:
		st.Status = StageProcessing
	case workqueue.StateDone, workqueue.StateSkipped:
		st.Status, st.Error = StageCompleted, ""
		var o outcome
		if json.Unmarshal(info.Result, &o) == nil {
			st.Agent, st.Result = o.Agent, o.Patch
		}
	case workqueue.StateError:
		st.Status = StageFailed
	case workqueue.StateQueued:
		if info.Attempts > 0 {
			st.Status = StageProcessing
		}
	}
}

// ofItems sets the state of a stage that takes items.
func (st *Stage) ofItems(n workqueue.Counts) {
	st.Pending, st.Processing = n.Queued, n.InProgress
	switch {
	case !st.CompletedAt.IsZero():
		st.Status = StageCompleted
	case n.Queued+n.InProgress+n.Done+n.Skipped+n.Error > 0:
		st.Status = StageProcessing
	}
}

func (c *Counts) add(n workqueue.Counts, review bool) {
	c.Pending += n.Queued
	c.Validating += n.InProgress
	c.Integrated += n.Done
	c.Rejected += n.Skipped
	if review {
		c.Review += n.Error
	} else {
		c.Failed += n.Error
	}
	c.Total += n.Queued + n.InProgress + n.Done + n.Skipped + n.Error
}

// usage adds the reported usage to jobs, in one round trip.
func (s *Service) usage(ctx context.Context, jobs []*Job) error {
	got := make([]*redis.MapStringStringCmd, len(jobs))
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, j := range jobs {
			got[i] = p.HGetAll(ctx, usageKey(j.ID))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the usage of jobs: %w", err)
	}
	for i, j := range jobs {
		j.addUsage(got[i].Val())
	}
	return nil
}

// addUsage adds usage in the format of usageKey.
func (j *Job) addUsage(all map[string]string) {
	for field, value := range all {
		at := strings.LastIndexByte(field, ' ')
		n, err := strconv.ParseInt(value, 10, 64)
		if at < 0 || err != nil {
			continue
		}
		agent, name := field[:at], field[at+1:]
		if j.AgentUsage == nil {
			j.AgentUsage, j.Usage = map[string]map[string]int64{}, map[string]int64{}
		}
		if j.AgentUsage[agent] == nil {
			j.AgentUsage[agent] = map[string]int64{}
		}
		j.AgentUsage[agent][name] += n
		if name != "assignments" {
			j.Usage[name] += n
		}
	}
}

// waiting returns why nothing happens in a job that has not ended, or "".
func (s *Service) waiting(ctx context.Context, j *Job, r record) (string, error) {
	switch {
	case j.Paused:
		return "until it is resumed", nil
	case j.Cron != "":
		return "for its next scheduled run", nil
	case j.Status == Created && !j.At.IsZero():
		if now, err := s.now(ctx); err != nil || j.At.After(now) {
			return "until " + j.At.Format("2006-01-02 15:04:05 MST"), err
		}
	}
	if j.Status == Created && len(j.After) > 0 {
		return "for its dependencies: " + strings.Join(j.After, ", "), nil
	}
	if j.Status == Created {
		served, err := s.runs.get(ctx, s.IsRunning)
		if err != nil || served {
			return "", err
		}
		return "no orchestrator is running; start one with muster start", nil
	}
	missing, err := s.missing(ctx, j)
	if err != nil || len(missing) > 0 {
		return joinSorted(missing), err
	}
	if j.Items.Review > 0 && j.Items.Pending+j.Items.Validating == 0 {
		return fmt.Sprintf("%d items wait for a decision; see muster jobs items %s --state review", j.Items.Review, j.ID), nil
	}
	return "", nil
}

// missing returns a message for each role without agents that has waiting work.
func (s *Service) missing(ctx context.Context, j *Job) ([]string, error) {
	if s.cfg.Roles == nil {
		return nil, nil
	}
	var idle []Stage
	for _, st := range j.Stages {
		takesJob := st.Takes == pipeline.TakesJob && (st.Status == StagePending || st.Status == StageProcessing) && st.Agent == ""
		if takesJob || st.Takes == pipeline.TakesItem && st.Pending > 0 && st.Processing == 0 {
			idle = append(idle, st)
		}
		if takesJob { // later stages that take the job have not begun
			break
		}
	}
	if len(idle) == 0 {
		return nil, nil
	}
	live, err := s.roles.get(ctx, s.cfg.Roles)
	if err != nil {
		return nil, err
	}
	var missing []string
	for _, st := range idle {
		switch {
		case st.Task != "" && live["task:"+st.Task] == 0:
			missing = append(missing, "no worker has a handler for task "+st.Task)
		case st.Role != "" && live[st.Role] == 0:
			if _, known := live[st.Role]; known {
				missing = append(missing, "no available agent of role "+st.Role+"; see muster agents list")
			} else {
				missing = append(missing, "no agent of role "+st.Role)
			}
		}
	}
	return slices.Compact(missing), nil
}

// IsRunning reports whether Run runs in a process.
func (s *Service) IsRunning(ctx context.Context) (bool, error) {
	n, err := s.rdb.Exists(ctx, sweepKey).Result()
	if err != nil {
		return false, fmt.Errorf("look for the process that runs jobs: %w", err)
	}
	return n > 0, nil
}

func joinSorted(list []string) string {
	slices.Sort(list)
	return strings.Join(list, ", ")
}
