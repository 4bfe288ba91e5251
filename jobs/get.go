package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/wrap"
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

// whole returns a job with its data outside its record. A brief one lacks its usage, the rest of a large prompt, a large context, and the agents
// of stages that are completed. It is made from the glance, which is read if it is nil.
func (s *Service) whole(ctx context.Context, id string, r record, brief bool, glance *workqueue.Glance) (Job, error) {
	if !brief {
		if err := s.addLarge(ctx, id, r); err != nil {
			return Job{}, err
		}
	}
	j, err := s.job(ctx, id, r)
	if err != nil {
		return Job{}, err
	}
	if err := s.fill(ctx, &j, r, brief, glance); err != nil {
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
func (s *Service) fill(ctx context.Context, j *Job, r record, brief bool, glance *workqueue.Glance) error {
	if r["final"] != "" {
		var f final
		if err := json.Unmarshal([]byte(r["final"]), &f); err != nil {
			return fmt.Errorf("read how job %s ended: %w", j.ID, err)
		}
		j.Stages, j.Items = f.Stages, f.Items
		return s.addResults(ctx, j, brief)
	}
	if glance == nil {
		var err error
		if glance, err = s.glance(ctx, j.ID, r, brief); err != nil {
			return err
		}
	}
	infos, counts := glance.Items, glance.Lanes
	for _, st := range j.Pipeline.Stages {
		stage := Stage{Name: st.Name, Role: st.Role, Task: st.Task, Takes: st.Takes, Status: StagePending, CompletedAt: r.time("done:" + st.Name)}
		if st.Takes == pipeline.TakesJob {
			if i := slices.IndexFunc(infos, func(in workqueue.Info) bool { return in.ID == stageID(st.Name) }); i >= 0 {
				stage.ofJob(infos[i])
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
	return s.addResults(ctx, j, brief)
}

// addResults adds the results and agents of completed stages to a job, unless it is brief.
func (s *Service) addResults(ctx context.Context, j *Job, brief bool) error {
	if brief {
		return nil
	}
	outcomes, err := s.outcomes(ctx, j.ID, j.Pipeline.Stages)
	for i := range j.Stages {
		if o, ok := outcomes[j.Stages[i].Name]; ok {
			j.Stages[i].Agent, j.Stages[i].Result = o.Agent, o.Patch
		}
	}
	return err
}

// glance reads the counts and the stages that take the job. A brief one lacks completed stages.
func (s *Service) glance(ctx context.Context, id string, r record, brief bool) (*workqueue.Glance, error) {
	ids, err := s.stageIDs(ctx, r, brief)
	if err != nil {
		return nil, err
	}
	all, err := workqueue.Glances(ctx, workqueue.Wanted{Queue: s.queue(id), IDs: ids})
	if err != nil {
		return nil, err
	}
	return &all[0], nil
}

// stageIDs returns the items of the stages that take the job; a brief list lacks completed stages.
func (s *Service) stageIDs(ctx context.Context, r record, brief bool) (ids []string, err error) {
	p, err := s.pipeline(ctx, r)
	if err != nil {
		return nil, err
	}
	for _, st := range p.Stages {
		if st.Takes == pipeline.TakesJob && (!brief || r["done:"+st.Name] == "") {
			ids = append(ids, stageID(st.Name))
		}
	}
	return ids, nil
}

// outcomes returns the outcomes of the completed stages among stages that take the job, by stage name.
func (s *Service) outcomes(ctx context.Context, id string, stages []pipeline.Stage) (map[string]outcome, error) {
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
	outcomes := map[string]outcome{}
	for i, raw := range all {
		var o outcome
		if json.Unmarshal(raw, &o) == nil {
			outcomes[strings.TrimPrefix(ids[i], stageID(""))] = o
		}
	}
	return outcomes, nil
}

// ofJob sets the state of a stage that takes the job.
func (st *Stage) ofJob(info workqueue.Info) {
	st.Attempts, st.Error, st.Agent = info.Attempts, info.Note, parseHolder(info.Worker).agent
	switch info.State {
	case workqueue.StateInProgress:
		st.Status = StageProcessing
	case workqueue.StateDone, workqueue.StateSkipped:
		st.Status, st.Error = StageCompleted, ""
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
	got, err := pipelined(ctx, s, "read the usage of jobs", len(jobs), func(p redis.Pipeliner, i int) *redis.MapStringStringCmd { return p.HGetAll(ctx, usageKey(jobs[i].ID)) })
	for i, cmd := range got {
		jobs[i].addUsage(cmd.Val())
	}
	return err
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
	return n > 0, wrap.Err(err, "look for the process that runs jobs")
}

func joinSorted(list []string) string {
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// record is the hash of a job:
//
//	name status version seq created updated started ended (unix ms)
//	prompt                       its beginning, if it is above MaxInline; then prompt_sha256 is set and the whole has a key
//	context                      empty if it is above MaxInline; then context_sha256 is set and it has a key
//	doc priority labels after on_failure at version_of generation
//	pipeline_sha256              of the pipeline when the job was created; see pipelineKey
//	stuck_after timeout          ms
//	headers                      as JSON: its trace and the id of the request that created it
//	work                         hash of the request, for dedupe
//	turn                         when its work was last taken, with fractions of a ms
//	after:JOB                    final state of a deleted dependency
//	done:STAGE                   when a stage was completed
//	failed_stage failed_stage_error  the stage that an operator failed, and why
//	progressed futile recoveries time of the last progress; number of recoveries since; total number
//	waited stuck:PROGRESSED      when a sweep last noted that it waits, for agents or a person; that this event was added
//	endings                      the last ending of its queue that is in the events
//	error details
//	paused reopened              1 while it is paused; when it was last reopened
//	final                        stages and counts, once it has ended, as JSON
//	counted                      its items by state, as they are in the counters of all jobs; see numbers.go
type record map[string]string

// final contains the stages and counts of an ended job.
type final struct {
	Stages []Stage `json:"stages,omitempty"`
	Items  Counts  `json:"items"`
}

func (s *Service) read(ctx context.Context, id string) (record, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	r, err := s.rdb.HGetAll(ctx, recordKey(id)).Result()
	if err != nil {
		return nil, fmt.Errorf("read job %s: %w", id, err)
	}
	if r["status"] == "" {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	return r, nil
}

// pipeline returns the pipeline of a job, or ErrNotFound if the job was deleted since its record was read. It must not be
// changed: other jobs have it, too.
func (s *Service) pipeline(ctx context.Context, r record) (*pipeline.Pipeline, error) {
	hash := r["pipeline_sha256"]
	if p := s.plans.get(hash); p != nil {
		return p, nil
	}
	text, err := s.rdb.HGet(ctx, pipelineKey(hash), "json").Result()
	if errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("%w: it has no pipeline", ErrNotFound)
	}
	p := &pipeline.Pipeline{}
	if err == nil {
		err = json.Unmarshal([]byte(text), p)
	}
	if err != nil {
		return nil, fmt.Errorf("read the pipeline of a job: %w", err)
	}
	s.plans.put(hash, p)
	return p, nil
}

func (r record) status() Status { return Status(r["status"]) }

func (r record) int(field string) int64 {
	n, _ := strconv.ParseInt(r[field], 10, 64)
	return n
}

func (r record) time(field string) time.Time {
	if ms := r.int(field); ms != 0 {
		return time.UnixMilli(ms).UTC()
	}
	return time.Time{}
}

func (r record) millis(field string) time.Duration {
	return time.Duration(r.int(field)) * time.Millisecond
}

func (r record) list(field string) []string {
	var list []string
	_ = json.Unmarshal([]byte(r[field]), &list)
	return list
}

func (r record) headers() map[string]string {
	var h map[string]string
	_ = json.Unmarshal([]byte(r["headers"]), &h)
	return h
}

func (r record) document() *Document {
	if r["doc"] == "" {
		return nil
	}
	d := &Document{}
	if json.Unmarshal([]byte(r["doc"]), d) != nil {
		return nil
	}
	return d
}

// job returns the part of a job that is in its record.
func (s *Service) job(ctx context.Context, id string, r record) (Job, error) {
	p, err := s.pipeline(ctx, r)
	if err != nil {
		return Job{}, fmt.Errorf("job %s: %w", id, err)
	}
	j := Job{
		ID: id, Kind: KindPipeline, Name: r["name"], Status: r.status(), Version: r.int("version"),
		Prompt: r["prompt"], Document: r.document(), Priority: int(r.int("priority")), Labels: r.list("labels"),
		CreatedAt: r.time("created"), UpdatedAt: r.time("updated"), StartedAt: r.time("started"), CompletedAt: r.time("ended"),
		ErrorMessage: r["error"], After: r.list("after"), OnFailure: r["on_failure"], At: r.time("at"),
		VersionOf: r["version_of"], Generation: int(max(1, r.int("generation"))), Recoveries: int(r.int("recoveries")), Paused: r["paused"] != "",
		StuckAfter: r.millis("stuck_after"), Timeout: r.millis("timeout"), Pipeline: p,
	}
	if r["context"] != "" {
		j.Context = json.RawMessage(r["context"])
	}
	if r["details"] != "" {
		j.ErrorDetails = json.RawMessage(r["details"])
	}
	return j, nil
}

// addLarge adds the prompt and the context from their separate keys to the record of a job.
func (s *Service) addLarge(ctx context.Context, id string, r record) error {
	for field, key := range map[string]string{"prompt": promptKey(id), "context": largeContextKey(id)} {
		if r[field+"_sha256"] == "" {
			continue
		}
		text, err := s.rdb.Get(ctx, key).Result()
		if errors.Is(err, redis.Nil) {
			return fmt.Errorf("%w: %s", ErrNotFound, id)
		}
		if err != nil {
			return fmt.Errorf("read the %s of job %s: %w", field, id, err)
		}
		r[field] = text
	}
	return nil
}

// checkID rejects invalid job ids.
func checkID(id string) error {
	if id == "" || len(id) > 100 {
		return bad("job_id", "%.40q is not the id of a job", id)
	}
	for _, c := range id {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' && c != '.' {
			return bad("job_id", "%.40q is not the id of a job", id)
		}
	}
	return nil
}
