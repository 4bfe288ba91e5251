package sites

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/atomicfile"
	"muster/internal/limit"
	"muster/internal/wrap"
	"muster/sites/crawl"
	"muster/sites/internal/lines"
	"muster/sites/internal/store"
	"muster/sites/polite"
	"muster/sites/record"
	"muster/sites/report"
	"muster/tasks"
	"muster/tasks/tasktype"
	"muster/tasks/workqueue"
)

// Progress counts the pages of a job by state. Total grows while listing pages are fetched.
func (s *Service) Progress(ctx context.Context, site, id string) (workqueue.Stats, error) {
	return workqueue.New(s.cfg.Client.Redis(), store.QueueName(site, id), workqueue.Config{}).Stats(ctx)
}

// Stored returns the summary of a completed job and whether Redis still has it. Summaries expire after a week.
func (s *Service) Stored(ctx context.Context, id string) (report.Summary, bool, error) {
	return store.ReadJSON[report.Summary](ctx, s.cfg.Client.Redis(), store.SummaryKey(id))
}

// Reported is like [Service.Stored] but reads the report in a job's directory. The directory has the report of the last job that
// wrote to it.
func Reported(folder, id string) (report.Summary, bool, error) {
	sum, ok, err := atomicfile.ReadJSON[report.Summary](filepath.Join(folder, record.ReportFile))
	return sum, ok && sum.JobID == id, wrap.Err(err, "read the report of job %s", id)
}

// Folder returns the directory of a job's records and report on the machine that writes them. The error is ErrNoJob if the job
// does not exist.
func (s *Service) Folder(ctx context.Context, id string) (string, error) {
	req, err := store.ReadRequest(ctx, s.cfg.Client.Redis(), id)
	if err != nil {
		return "", err
	}
	return req.Dir(id), nil
}

// Site returns nil if a site exists, either in the registry or in Redis with a job or a pause, which may come from another
// machine's registry. Otherwise it returns an *UnknownError.
func (s *Service) Site(ctx context.Context, name string) error {
	names, err := s.Names(ctx)
	if err != nil || slices.Contains(names, name) {
		return err
	}
	jobs, err := s.Jobs(ctx, name, 1)
	if err != nil || len(jobs) > 0 {
		return err
	}
	return s.registry.Unknown(name)
}

// ErrNothingLeft is the error of Resumable for a job without pages to fetch.
var ErrNothingLeft = errors.New("all pages are fetched; nothing to resume")

// Resumable returns nil if Resume would fetch pages of a job, and ErrNothingLeft or ErrNoJob otherwise.
func (s *Service) Resumable(ctx context.Context, id string) error {
	j, err := s.Job(ctx, id)
	if err != nil {
		return err
	}
	open := j.Pages.Open()
	if j.Summary != nil && len(j.Summary.Limits) > 0 { // it reached its limits
		open = 0
	}
	if j.Status == report.StatusComplete && j.Pages.Error == 0 && open == 0 {
		return fmt.Errorf("job %s: %w", id, ErrNothingLeft)
	}
	return nil
}

// PausedSites returns the paused sites in no particular order.
func (s *Service) PausedSites(ctx context.Context) ([]string, error) {
	sites, err := s.cfg.Client.Redis().SMembers(ctx, store.PausedSitesKey).Result()
	return sites, wrap.Err(err, "list paused sites")
}

// Stalled is a running scrape without a fetched or failed page for at least two minutes.
type Stalled = crawl.Stalled

// StalledJobs returns the running scrapes that make no progress, longest first, without paused ones.
func StalledJobs(ctx context.Context, client *tasks.Client) ([]Stalled, error) {
	return crawl.StalledJobs(ctx, client)
}

// Statuses of a Job, in addition to the statuses of a Summary.
const (
	JobWaiting  = "WAITING" // for a worker or for jobs that it depends on
	JobRunning  = "RUNNING"
	JobPaused   = "PAUSED"  // by PauseSite
	JobBlocked  = "BLOCKED" // writes of records or of its state in Redis fail; Trouble is the reason
	JobFailed   = crawl.StatusFailed
	JobCanceled = crawl.StatusCanceled
)

// A Job is a running or completed scrape of a site.
type Job struct {
	ID      string        `json:"id"`
	Site    string        `json:"site"`
	Status  string        `json:"status"`
	Began   time.Time     `json:"began"`
	Resumes string        `json:"resumes,omitempty"` // the continued job
	Direct  report.Direct `json:"direct,omitempty"`  // the reason for direct requests, if any
	// WaitsFor are sites whose jobs must complete first.
	WaitsFor []string        `json:"waits_for,omitempty"`
	Pages    workqueue.Stats `json:"pages"`
	Records  map[string]int  `json:"records"`          // written records by type
	Delays   map[string]int  `json:"delays,omitempty"` // number of waits of pages by crawl.Delay
	Trouble  string          `json:"trouble,omitempty"`
	Error    string          `json:"error,omitempty"`   // of a failed job
	Summary  *report.Summary `json:"summary,omitempty"` // of a completed job
}

// Over reports whether the job has terminated.
func (j *Job) Over() bool {
	return j.Summary != nil || j.Status == JobFailed || j.Status == JobCanceled
}

// Jobs returns up to n scrapes of a site, or of all sites if site is "", newest first. Redis keeps the scrapes that began in the
// last week.
func (s *Service) Jobs(ctx context.Context, site string, n int) ([]Job, error) {
	listed, err := s.JobsSince(ctx, time.Time{})
	if err != nil {
		return nil, err
	}
	jobs := []Job{}
	for _, l := range listed {
		if len(jobs) == n {
			break
		}
		if site != "" && l.Site != site {
			continue
		}
		j, err := s.Job(ctx, l.ID)
		if errors.Is(err, store.ErrNoJob) {
			continue
		}
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// JobBegan is a scrape and its start time.
type JobBegan struct {
	ID    string
	Site  string
	Began time.Time
}

// JobsSince returns the newest 10,000 scrapes that began at or after a time, newest first, without their states.
func (s *Service) JobsSince(ctx context.Context, since time.Time) ([]JobBegan, error) {
	since = slices.MaxFunc([]time.Time{since, time.Now().Add(-store.Keep)}, time.Time.Compare)
	listed, err := s.cfg.Client.Redis().ZRevRangeByScoreWithScores(ctx, store.JobsKey, &redis.ZRangeBy{
		Min: fmt.Sprint(since.UnixMilli()), Max: "+inf", Count: 10_000,
	}).Result()
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	jobs := make([]JobBegan, len(listed))
	for i, z := range listed {
		member, _ := z.Member.(string)
		id, site, _ := strings.Cut(member, " ")
		jobs[i] = JobBegan{id, site, time.UnixMilli(int64(z.Score))}
	}
	return jobs, nil
}

// Job returns the state or the result of a scrape. The error is ErrNoJob if it does not exist.
func (s *Service) Job(ctx context.Context, id string) (Job, error) {
	rdb := s.cfg.Client.Redis()
	req, err := store.ReadRequest(ctx, rdb, id)
	if err != nil {
		return Job{}, err
	}
	j := Job{ID: id, Site: req.Site, Began: time.UnixMilli(req.Began), Resumes: req.Resume, Direct: req.Direct}
	q := workqueue.New(rdb, store.QueueName(req.Site, req.PagesOf(id)), workqueue.Config{})
	if j.Pages, err = q.Stats(ctx); err != nil {
		return Job{}, err
	}
	if j.Records, j.Trouble, err = store.Written(ctx, q.Outputs()); err != nil {
		return Job{}, err
	}
	counts, err := crawl.Counts(ctx, rdb, store.CountsKey(req.PagesOf(id)))
	if err != nil {
		return Job{}, err
	}
	j.Delays = counts["delay"]
	if sum, ok, err := store.ReadJSON[report.Summary](ctx, rdb, store.SummaryKey(id)); err != nil {
		return Job{}, err
	} else if ok {
		j.Summary, j.Status = &sum, sum.Status
		return j, nil
	}
	status, err := s.cfg.Client.Workflow(id).Status(ctx)
	switch {
	case errors.Is(err, tasks.ErrNotFound):
		j.Status, j.Error = JobFailed, "it terminated without a stored result"
	case err != nil:
		return Job{}, fmt.Errorf("read job %s: %w", id, err)
	case status == tasktype.Revoked:
		j.Status = JobCanceled
	case status == tasktype.Failed || status == tasktype.Skipped:
		j.Status = JobFailed
		j.Error, err = s.failure(ctx, id)
	default:
		j.Status, err = s.progress(ctx, &j, req, status)
	}
	if err != nil {
		return Job{}, err
	}
	return j, nil
}

// progress returns the status of a job that has not failed and sets Trouble or WaitsFor.
func (s *Service) progress(ctx context.Context, j *Job, req store.Request, status tasktype.Status) (string, error) {
	if len(req.After) > 0 {
		j.WaitsFor = slices.Sorted(maps.Keys(req.After))
		return JobWaiting, nil
	}
	if j.Trouble != "" {
		return JobBlocked, nil
	}
	if !status.Terminal() { // the writer cannot report that Redis rejects writes
		if err := s.cfg.Client.Writable(ctx); tasks.Refused(err) {
			j.Trouble = err.Error()
			return JobBlocked, nil
		}
	}
	if j.Pages.Paused {
		return JobPaused, nil
	}
	if j.Pages.Outputs > 0 {
		var err error
		if j.Trouble, err = s.recorder.Unwritten(ctx, req); err != nil {
			return "", err
		}
		if j.Trouble != "" {
			return JobBlocked, nil
		}
	}
	served, err := s.hasWorker(ctx)
	if err != nil {
		return "", err
	}
	begun := status != tasktype.Pending || j.Pages.Total > 0 || j.Pages.InProgress > 0
	if !served || !begun {
		return JobWaiting, nil
	}
	return JobRunning, nil
}

// hasWorker reports whether a running worker takes tasks of scrapes.
func (s *Service) hasWorker(ctx context.Context) (bool, error) {
	workers, err := s.cfg.Client.Inspect().Workers(ctx)
	if err != nil {
		return false, fmt.Errorf("list workers: %w", err)
	}
	return slices.ContainsFunc(workers, func(w tasktype.Worker) bool { return w.Queues[Queue] > 0 }), nil
}

// failure returns the error of a failed job.
func (s *Service) failure(ctx context.Context, id string) (string, error) {
	_, err := tasks.Attach[report.Summary](s.cfg.Client, id).Wait(ctx) // does not block: the job has ended
	if f, ok := errors.AsType[*tasks.Failure](err); ok {
		return f.Message, nil
	}
	if err != nil && !errors.Is(err, tasks.ErrNotFound) {
		return "", fmt.Errorf("read job %s: %w", id, err)
	}
	return "", nil
}

// State is the current state of a site's scrapes: the health of the last job that has one, the failure of a later job, and delays
// of the running job.
type State struct {
	Site        string              `json:"site"`
	BaseURL     string              `json:"base_url,omitempty"`    // if the registry has the definition
	Description string              `json:"description,omitempty"` // likewise
	Health      report.HealthStatus `json:"health"`                // "" if no job of the last week has one
	Alerts      []string            `json:"alerts"`
	Paused      bool                `json:"paused"`
	Job         *Job                `json:"job,omitempty"`  // the newest
	Last        *report.Health      `json:"last,omitempty"` // of the last job with a health
}

// States returns the states of all sites in the registry or with jobs in Redis, sorted by name.
func (s *Service) States(ctx context.Context) ([]State, error) { return s.states(ctx, "") }

// states is States for one site, or for all if only is "".
func (s *Service) states(ctx context.Context, only string) ([]State, error) {
	jobs, err := s.JobsSince(ctx, time.Time{})
	if err != nil {
		return nil, err
	}
	health, err := s.Health(ctx)
	if err != nil {
		return nil, err
	}
	paused, err := s.PausedSites(ctx)
	if err != nil {
		return nil, err
	}
	newest, last := map[string]string{}, map[string]*report.Health{}
	for _, name := range s.registry.Names() {
		newest[name] = ""
	}
	for _, h := range health {
		newest[h.Site], last[h.Site] = "", &h
	}
	for _, j := range slices.Backward(jobs) {
		newest[j.Site] = j.ID
	}
	states := []State{}
	for _, name := range slices.Sorted(maps.Keys(newest)) {
		if only != "" && name != only {
			continue
		}
		st := State{Site: name, Alerts: []string{}, Paused: slices.Contains(paused, name), Last: last[name]}
		if def, err := s.registry.Definition(name); err == nil {
			st.BaseURL, st.Description = def.BaseURL, def.Description
		}
		if st.Last != nil {
			st.Health, st.Alerts = st.Last.Status, append(st.Alerts, st.Last.Alerts...)
		}
		if err := s.addNewest(ctx, &st, newest[name]); err != nil {
			return nil, err
		}
		states = append(states, st)
	}
	return states, nil
}

// State returns the state of a site, and its health in the jobs of the last seven days, newest first. The error is an
// *UnknownError if the site does not exist.
func (s *Service) State(ctx context.Context, name string) (State, []report.Health, error) {
	states, err := s.states(ctx, name)
	if err != nil {
		return State{}, nil, err
	}
	if len(states) == 0 {
		return State{}, nil, s.registry.Unknown(name)
	}
	health, err := store.HealthOf(ctx, s.cfg.Client.Redis(), name)
	if err != nil {
		return State{}, nil, err
	}
	health = slices.DeleteFunc(health, func(h report.Health) bool { return time.Since(h.At) > report.Baseline })
	return states[0], health, nil
}

// Health returns the health of each site in its last job, sorted by name. It omits sites without a job in the last seven days.
func (s *Service) Health(ctx context.Context) ([]report.Health, error) {
	return store.LastHealth(ctx, s.cfg.Client.Redis())
}

// addNewest adds the newest job to the state, if there is one.
func (s *Service) addNewest(ctx context.Context, st *State, id string) error {
	if id == "" {
		return nil
	}
	j, err := s.Job(ctx, id)
	if errors.Is(err, store.ErrNoJob) {
		return nil
	}
	if err != nil {
		return err
	}
	st.Job = &j
	open, err := s.breakerOpen(ctx, j)
	st.addJob(open)
	return err
}

// addJob adds the newest job to the state if the job failed or has no health yet. breakerOpen is whether the site's circuit
// breaker is open.
func (st *State) addJob(breakerOpen bool) {
	degrade := func(why string) {
		if st.Health != report.Critical {
			st.Health = report.Degraded
		}
		st.Alerts = append([]string{why}, st.Alerts...)
	}
	j := st.Job
	switch {
	case j.Status == JobFailed:
		st.Health = report.Critical
		st.Alerts = []string{"last job failed: " + j.Error}
	case j.Over():
	case j.Status == JobBlocked:
		degrade("cannot write records: " + j.Trouble)
	case breakerOpen:
		degrade("circuit breaker open after failed requests; pages wait until the site recovers")
	}
}

// breakerOpen reports whether a circuit breaker blocks the requests of a running job.
func (s *Service) breakerOpen(ctx context.Context, j Job) (bool, error) {
	if j.Over() {
		return false, nil
	}
	rdb := s.cfg.Client.Redis()
	req, err := store.ReadRequest(ctx, rdb, j.ID)
	if errors.Is(err, store.ErrNoJob) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	def, err := req.Definition()
	if err != nil { // another release wrote it, and the job will fail
		return false, nil
	}
	b := polite.NewSiteBreaker(rdb, crawl.SiteKey(def), def.Retries.StallMax, time.UnixMilli(req.Began), limit.BreakerConfig{Logger: s.cfg.Logger})
	state, err := b.State(ctx)
	return state.State == "open", err
}

// Names returns the sites in the registry and those with a health or a pause in Redis, sorted.
func (s *Service) Names(ctx context.Context) ([]string, error) {
	rdb := s.cfg.Client.Redis()
	names := s.registry.Names()
	for _, b := range s.registry.Broken() {
		names = append(names, b.Name)
	}
	for _, set := range []string{store.HealthSitesKey, store.PausedSitesKey} {
		there, err := rdb.SMembers(ctx, set).Result()
		if err != nil {
			return nil, fmt.Errorf("list sites: %w", err)
		}
		names = append(names, there...)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// maxHead limits the bytes that Head reads from a file of records.
const maxHead = 1 << 20

// RecordHead has the first records of a type.
type RecordHead struct {
	Type    string
	Records []json.RawMessage
	More    bool // more records follow
}

// Head returns the first n records of each type of a job, in the order of the definition. It omits types without records and
// reads up to 1 MiB of each file. The records directory must be on this machine.
func Head(ctx context.Context, s *Service, id string, n int) ([]RecordHead, error) {
	files, err := s.filesOf(ctx, id)
	if err != nil {
		return nil, err
	}
	var heads []RecordHead
	for _, f := range files {
		head, err := headOf(ctx, f, n)
		if err != nil {
			return nil, err
		}
		if len(head.Records) > 0 || head.More {
			heads = append(heads, head)
		}
	}
	return heads, nil
}

// errEnough ends the reading of a head.
var errEnough = errors.New("the head is complete")

// headOf reads the first n records of a file, which may not exist.
func headOf(ctx context.Context, path string, n int) (RecordHead, error) {
	head, size := RecordHead{Type: strings.TrimSuffix(filepath.Base(path), ".jsonl")}, 0
	_, err := passOn(ctx, path, 0, func(record []byte) error {
		if size += len(record); size > maxHead || len(head.Records) == n {
			head.More = true
			return errEnough
		}
		if json.Valid(record) {
			head.Records = append(head.Records, record)
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return head, err
}

// followEvery is the interval at which Follow polls for records.
const followEvery = 150 * time.Millisecond

// Follow calls each with every record of a job, a JSON object without a newline, in the order of the job's files, beginning with
// existing records. It blocks until the job has terminated and all records are delivered, ctx is done, or each returns an error,
// which Follow then returns. Each record is delivered once and is valid until each returns. The records directory must be on this
// machine.
func (s *Service) Follow(ctx context.Context, id string, each func(record []byte) error) error {
	var files []string
	read := map[string]int64{} // bytes by file
	for {
		j, err := s.Job(ctx, id)
		over := false
		switch {
		case errors.Is(err, store.ErrNoJob): // it has not begun
			over, err = s.hasEnded(ctx, id)
		case err != nil:
		case j.Status == JobFailed, j.Status == JobCanceled:
			over = j.Pages.Outputs == 0 || j.Trouble != ""
		default:
			over = j.Summary != nil
		}
		if err == nil && files == nil && j.ID != "" {
			files, err = s.filesOf(ctx, id)
		}
		if err != nil {
			return err
		}
		for _, file := range files { // read after the status, so those of a terminated job are complete
			n, err := passOn(ctx, file, read[file], each)
			if err != nil {
				return err
			}
			read[file] += n
		}
		if over {
			return nil
		}
		select {
		case <-time.After(followEvery):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// hasEnded reports whether the workflow of a job has terminated or does not exist.
func (s *Service) hasEnded(ctx context.Context, id string) (bool, error) {
	status, err := s.cfg.Client.Workflow(id).Status(ctx)
	if errors.Is(err, tasks.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("read job %s: %w", id, err)
	}
	return status != tasktype.Pending && status != tasktype.Started && status != tasktype.Retry, nil
}

// filesOf returns the files of a job's records.
func (s *Service) filesOf(ctx context.Context, id string) ([]string, error) {
	req, err := store.ReadRequest(ctx, s.cfg.Client.Redis(), id)
	if err != nil {
		return nil, err
	}
	if err := s.recorder.Check(req); err != nil {
		return nil, fmt.Errorf("job %s: %w", id, err)
	}
	if !s.recorder.Sees(req) {
		return nil, fmt.Errorf("the records of job %s are in %s on another machine", id, req.OutDir)
	}
	def, err := req.Definition()
	if err != nil {
		return nil, err
	}
	files := []string{}
	for _, rec := range def.Records {
		files = append(files, filepath.Join(req.Dir(id), rec.Name+".jsonl"))
	}
	return files, nil
}

// passOn calls each with the complete lines of a file from an offset on, and returns their total size. The file may not exist.
func passOn(ctx context.Context, path string, from int64, each func([]byte) error) (n int64, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("follow records: %w", err)
	}
	defer f.Close()
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return 0, fmt.Errorf("follow records: %w", err)
	}
	for record, err := range lines.Of(f) {
		if err != nil {
			return n, fmt.Errorf("follow records: %w", err)
		}
		if ctx.Err() != nil {
			return n, context.Cause(ctx)
		}
		if len(record) > 0 {
			if err := each(record); err != nil {
				return n, err
			}
		}
		n += int64(len(record)) + 1
	}
	return n, nil
}
