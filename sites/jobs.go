package sites

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"muster/sites/definition"
	"muster/sites/internal/store"
	"muster/sites/record"
	"muster/sites/report"
	"muster/tasks"
	"muster/tasks/tasktype"
	"muster/tasks/workqueue"
)

// The statuses of a Job beside those of a Summary.
const (
	JobWaiting  = "WAITING" // for a worker, or for the jobs that it depends on
	JobRunning  = "RUNNING"
	JobPaused   = "PAUSED"  // by PauseSite
	JobBlocked  = "BLOCKED" // its records, or what Redis knows of it, cannot be written; Trouble says why
	JobFailed   = "FAILED"
	JobCanceled = "CANCELED"
)

// Job is a scrape of a site, under way or over.
type Job struct {
	ID      string        `json:"id"`
	Site    string        `json:"site"`
	Status  string        `json:"status"`
	Began   time.Time     `json:"began"`
	Resumes string        `json:"resumes,omitempty"` // the job that it goes on with
	Direct  report.Direct `json:"direct,omitempty"`  // why it uses no proxies, if so
	// WaitsFor are sites that it depends on, while it waits for their jobs.
	WaitsFor []string        `json:"waits_for,omitempty"`
	Pages    workqueue.Stats `json:"pages"`
	Records  map[string]int  `json:"records"`          // by type, as far as they are written
	Delays   map[string]int  `json:"delays,omitempty"` // how often pages waited, by Delay
	Trouble  string          `json:"trouble,omitempty"`
	Error    string          `json:"error,omitempty"`   // of one that failed
	Summary  *report.Summary `json:"summary,omitempty"` // of one that is over
}

// Over reports whether the job has ended.
func (j *Job) Over() bool {
	return j.Summary != nil || j.Status == JobFailed || j.Status == JobCanceled
}

// JobDefinition is the definition that a job goes by, which is that of its
// site from when it was sent.
func (s *Service) JobDefinition(ctx context.Context, id string) (*definition.Definition, error) {
	req, err := store.ReadRequest(ctx, s.cfg.Client.Redis(), id)
	if err != nil {
		return nil, err
	}
	return req.Definition()
}

// Jobs lists up to n scrapes, of one site or of all when it is "", the newest
// first. Those that began more than a week ago are not known any more.
func (s *Service) Jobs(ctx context.Context, site string, n int) ([]Job, error) {
	ids, err := s.cfg.Client.Redis().ZRevRange(ctx, store.JobsKey, 0, 9999).Result()
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	var of map[string]string
	if site != "" {
		if of, err = s.siteNames.of(ctx, s.cfg.Client.Redis(), ids); err != nil {
			return nil, err
		}
	}
	jobs := []Job{}
	for _, id := range ids {
		if len(jobs) == n {
			break
		}
		if site != "" && of[id] != site {
			continue
		}
		j, err := s.Job(ctx, id)
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

// Job returns the state of a scrape that is under way, or what became of it. It
// fails with ErrNoJob when there is none.
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
	if j.Delays, err = readCounts(ctx, rdb, store.DelaysKey(req.PagesOf(id))); err != nil {
		return Job{}, err
	}
	if sum, ok, err := store.ReadJSON[report.Summary](ctx, rdb, store.SummaryKey(id)); err != nil {
		return Job{}, err
	} else if ok {
		j.Summary, j.Status = &sum, sum.Status
		return j, nil
	}
	status, err := tasks.Attach[report.Summary](s.cfg.Client, id).Status(ctx)
	switch {
	case errors.Is(err, tasks.ErrUnknown):
		j.Status, j.Error = JobFailed, "it ended, and its outcome is not known"
	case err != nil:
		return Job{}, fmt.Errorf("look at job %s: %w", id, err)
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

// progress is the status of a job whose workflow has one that is not a failure.
// It notes the trouble of a job that is blocked, and what one that waits waits for.
func (s *Service) progress(ctx context.Context, j *Job, req store.Request, status tasktype.Status) (string, error) {
	if len(req.After) > 0 {
		j.WaitsFor = slices.Sorted(maps.Keys(req.After))
		return JobWaiting, nil
	}
	if j.Trouble != "" {
		return JobBlocked, nil
	}
	if !status.Terminal() { // a writer cannot note its trouble in a Redis that takes no writes
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
	served, err := s.served(ctx)
	if err != nil {
		return "", err
	}
	begun := status != tasktype.Pending || j.Pages.Total > 0 || j.Pages.InProgress > 0
	if !served || !begun {
		return JobWaiting, nil
	}
	return JobRunning, nil
}

// Stored returns the summary of a job that is over, and whether Redis has it:
// it does for a week. Its error is a *tasks.Failure when the job failed as a
// whole.
func (s *Service) Stored(ctx context.Context, id string) (report.Summary, bool, error) {
	sum, ok, err := store.ReadJSON[report.Summary](ctx, s.cfg.Client.Redis(), store.SummaryKey(id))
	if err != nil || !ok {
		return report.Summary{}, false, err
	}
	return answerOf(sum)
}

// Reported is [Service.Stored] from the report in a job's folder, which has that
// of the last job that wrote there.
func Reported(folder, id string) (report.Summary, bool, error) {
	data, err := os.ReadFile(filepath.Join(folder, record.ReportFile))
	if errors.Is(err, fs.ErrNotExist) {
		return report.Summary{}, false, nil
	}
	var sum report.Summary
	if err == nil {
		err = json.Unmarshal(data, &sum)
	}
	if err != nil {
		return report.Summary{}, false, fmt.Errorf("read the report of job %s: %w", id, err)
	}
	if sum.JobID != id {
		return report.Summary{}, false, nil
	}
	return answerOf(sum)
}

// answerOf is the result of the workflow of a job with this summary.
func answerOf(s report.Summary) (report.Summary, bool, error) {
	if err := s.Err(); err != nil {
		return s, false, &tasks.Failure{Task: store.Aggregate.Name(), Message: err.Error()}
	}
	return s, true, nil
}

// Folder returns where the records and the report of a job are, on the machine
// that writes them. It fails with ErrNoJob when there is no such job.
func (s *Service) Folder(ctx context.Context, id string) (string, error) {
	req, err := store.ReadRequest(ctx, s.cfg.Client.Redis(), id)
	if err != nil {
		return "", err
	}
	return req.Dir(id), nil
}

// served reports whether a worker is up that takes tasks of scrapes.
func (s *Service) served(ctx context.Context) (bool, error) {
	workers, err := s.cfg.Client.Workers(ctx)
	if err != nil {
		return false, fmt.Errorf("look for workers: %w", err)
	}
	return slices.ContainsFunc(workers, func(w tasktype.Worker) bool { return w.Queues[Queue] > 0 }), nil
}

// failure is why a job failed.
func (s *Service) failure(ctx context.Context, id string) (string, error) {
	_, err := tasks.Attach[report.Summary](s.cfg.Client, id).Wait(ctx) // it has ended: this does not wait
	if f, ok := errors.AsType[*tasks.Failure](err); ok {
		return f.Message, nil
	}
	if err != nil && !errors.Is(err, tasks.ErrUnknown) {
		return "", fmt.Errorf("look at job %s: %w", id, err)
	}
	return "", nil
}

// Site looks whether there is a site of that name: in the registry, or with a job or a pause that Redis knows of, which
// may be of another machine's registry. Its error is an *UnknownError when there is none.
func (s *Service) Site(ctx context.Context, name string) error {
	_, unknown := s.cfg.Registry.Definition(name)
	if !errors.As(unknown, new(*UnknownError)) {
		return nil
	}
	rdb := s.cfg.Client.Redis()
	for _, set := range []string{store.HealthSitesKey, store.PausedSitesKey} {
		there, err := rdb.SIsMember(ctx, set, name).Result()
		if err != nil {
			return fmt.Errorf("look for site %s: %w", name, err)
		}
		if there {
			return nil
		}
	}
	jobs, err := s.Jobs(ctx, name, 1)
	if err != nil {
		return err
	}
	if len(jobs) == 0 {
		return unknown
	}
	return nil
}

// ErrNothingLeft says that a job has nothing left for Resume.
var ErrNothingLeft = errors.New("it has every page; there is nothing to get again")

// Resumable returns nil for a job that Resume can get something for, and ErrNothingLeft or ErrNoJob otherwise.
func (s *Service) Resumable(ctx context.Context, id string) error {
	j, err := s.Job(ctx, id)
	if err != nil {
		return err
	}
	if j.Status == report.StatusComplete && j.Pages.Error == 0 && j.Pages.Open() == 0 {
		return fmt.Errorf("job %s: %w", id, ErrNothingLeft)
	}
	return nil
}

// Cancel ends a scrape: nothing more is fetched, what is fetched is written.
// Resume goes on with it.
func (s *Service) Cancel(ctx context.Context, id string) error {
	if _, err := store.ReadRequest(ctx, s.cfg.Client.Redis(), id); err != nil {
		return err
	}
	if err := s.cfg.Client.Revoke(ctx, id); err != nil {
		return fmt.Errorf("cancel job %s: %w", id, err)
	}
	return nil
}

// PauseSite stops the fetching of pages of a site, in all processes, until
// ResumeSite: of the job that is under way, but for pages that are being fetched,
// and of jobs that begin meanwhile.
func (s *Service) PauseSite(ctx context.Context, site string) error {
	if err := s.cfg.Client.Redis().SAdd(ctx, store.PausedSitesKey, site).Err(); err != nil {
		return fmt.Errorf("pause site %s: %w", site, err)
	}
	return s.eachOpen(ctx, site, func(q *workqueue.Queue) error { _, err := q.Pause(ctx); return err })
}

// ResumeSite ends PauseSite.
func (s *Service) ResumeSite(ctx context.Context, site string) error {
	if err := s.cfg.Client.Redis().SRem(ctx, store.PausedSitesKey, site).Err(); err != nil {
		return fmt.Errorf("resume site %s: %w", site, err)
	}
	return s.eachOpen(ctx, site, func(q *workqueue.Queue) error { _, err := q.Resume(ctx); return err })
}

// PausedSites lists the sites that are paused, in no order.
func (s *Service) PausedSites(ctx context.Context) ([]string, error) {
	sites, err := s.cfg.Client.Redis().SMembers(ctx, store.PausedSitesKey).Result()
	if err != nil {
		return nil, fmt.Errorf("list paused sites: %w", err)
	}
	return sites, nil
}

// eachOpen calls fn with the queue of each job of a site that is under way.
func (s *Service) eachOpen(ctx context.Context, site string, fn func(*workqueue.Queue) error) error {
	rdb := s.cfg.Client.Redis()
	open, err := rdb.SMembers(ctx, store.OpenJobsKey).Result()
	if err != nil {
		return fmt.Errorf("list open jobs: %w", err)
	}
	for _, id := range open {
		req, err := store.ReadRequest(ctx, s.cfg.Client.Redis(), id)
		if errors.Is(err, store.ErrNoJob) || err == nil && req.Site != site {
			continue
		}
		if err != nil {
			return err
		}
		if err := fn(workqueue.New(rdb, store.QueueName(site, req.PagesOf(id)), workqueue.Config{})); err != nil {
			return err
		}
	}
	return nil
}

// applyPause pauses a job that begins while its site is paused, and wakes one
// that resumes another that was paused when it ended.
func (j *job) applyPause(ctx context.Context) error {
	paused, err := j.rdb.SIsMember(ctx, store.PausedSitesKey, j.def.Site).Result()
	if err != nil {
		return fmt.Errorf("look whether site %s is paused: %w", j.def.Site, err)
	}
	set := j.queue.Resume
	if paused {
		set = j.queue.Pause
	}
	if _, err := set(ctx); err != nil {
		return fmt.Errorf("pause or wake job %s: %w", j.id, err)
	}
	return nil
}

// idOf is what the ids of a site's jobs begin with, if Send gave them.
func idOf(site string) string { return "scrape_" + strings.ReplaceAll(site, ".", "_") + "_" }
