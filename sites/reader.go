package sites

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"muster/sites/definition"
	"muster/sites/internal/store"
	"muster/sites/record"
	"muster/sites/report"
	"muster/tasks"
	"muster/tasks/workqueue"
)

// Progress counts the pages of a job by their state. Total grows while listing
// pages are fetched.
func (r *Reader) Progress(ctx context.Context, site, id string) (workqueue.Stats, error) {
	return workqueue.New(r.client.Redis(), store.QueueName(site, id), workqueue.Config{}).Stats(ctx)
}

// Reader reads what Redis has of jobs and sites. It changes nothing. It may be
// used by many goroutines.
type Reader struct {
	client    *tasks.Client
	registry  *Registry
	recorder  *record.Recorder
	log       *slog.Logger
	siteNames siteNames
	closed    closedJobs
}

// JobDefinition returns the definition that a job uses: that of its site when
// the job was sent.
func (r *Reader) JobDefinition(ctx context.Context, id string) (*definition.Definition, error) {
	req, err := store.ReadRequest(ctx, r.client.Redis(), id)
	if err != nil {
		return nil, err
	}
	return req.Definition()
}

// Stored returns the summary of a job that has ended, and whether Redis has it,
// which is so for a week.
func (r *Reader) Stored(ctx context.Context, id string) (report.Summary, bool, error) {
	return store.ReadJSON[report.Summary](ctx, r.client.Redis(), store.SummaryKey(id))
}

// Reported is like [Reader.Stored], but reads the report in a job's folder, which
// is that of the last job that wrote there.
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
	return sum, true, nil
}

// Folder returns the folder of the records and the report of a job, on the
// machine that writes them. It fails with ErrNoJob when there is no such job.
func (r *Reader) Folder(ctx context.Context, id string) (string, error) {
	req, err := store.ReadRequest(ctx, r.client.Redis(), id)
	if err != nil {
		return "", err
	}
	return req.Dir(id), nil
}

// Site returns nil if a site exists: in the registry, or in Redis with a job or a
// pause, which may be of another machine's registry. Otherwise it returns an
// *UnknownError.
func (r *Reader) Site(ctx context.Context, name string) error {
	_, unknown := r.registry.Definition(name)
	if !errors.As(unknown, new(*UnknownError)) {
		return nil
	}
	rdb := r.client.Redis()
	for _, set := range []string{store.HealthSitesKey, store.PausedSitesKey} {
		there, err := rdb.SIsMember(ctx, set, name).Result()
		if err != nil {
			return fmt.Errorf("look for site %s: %w", name, err)
		}
		if there {
			return nil
		}
	}
	jobs, err := r.Jobs(ctx, name, 1)
	if err != nil {
		return err
	}
	if len(jobs) == 0 {
		return unknown
	}
	return nil
}

// ErrNothingLeft is the error of Resumable for a job that has every page.
var ErrNothingLeft = errors.New("it has every page; there is nothing to get again")

// Resumable returns nil if Resume has pages of a job to fetch, and ErrNothingLeft
// or ErrNoJob otherwise.
func (r *Reader) Resumable(ctx context.Context, id string) error {
	j, err := r.Job(ctx, id)
	if err != nil {
		return err
	}
	open := j.Pages.Open()
	if j.Summary != nil && len(j.Summary.Limits) > 0 { // it has as much as it may have
		open = 0
	}
	if j.Status == report.StatusComplete && j.Pages.Error == 0 && open == 0 {
		return fmt.Errorf("job %s: %w", id, ErrNothingLeft)
	}
	return nil
}

// PausedSites lists the sites that are paused, in no order.
func (r *Reader) PausedSites(ctx context.Context) ([]string, error) {
	sites, err := r.client.Redis().SMembers(ctx, store.PausedSitesKey).Result()
	if err != nil {
		return nil, fmt.Errorf("list paused sites: %w", err)
	}
	return sites, nil
}
