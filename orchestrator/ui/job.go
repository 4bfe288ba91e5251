package ui

import (
	"context"
	"errors"
	"net/http"
	"time"

	"muster/internal/clip"
	"muster/internal/webui"
	"muster/jobs"
)

const promptShown = 4 << 10 // bytes

type jobData struct {
	jobs.Job
	Progress jobs.Progress
	Compared *compareData
}

// oneJob shows a job. It reads no items, only the last errors.
func (p *pages) oneJob(ctx context.Context, r *http.Request) (webui.View, error) {
	id := r.PathValue("job")
	j, progress, err := p.Jobs.Look(ctx, id)
	if err != nil {
		return webui.View{}, noJob(id, err)
	}
	d := jobData{Job: j, Progress: progress}
	other := r.URL.Query().Get("compare")
	if other != "" {
		d.Compared, err = p.compare(ctx, other, id)
	}
	return webui.View{Name: webui.Plain(j.Name) + " " + string(j.Status), Data: d, Every: 2 * time.Second, Fixed: other != ""}, err
}

// noJob converts the error of an unknown or invalid job ID to a page.
func noJob(id string, err error) error {
	field := (*jobs.FieldError)(nil)
	if errors.Is(err, jobs.ErrNotFound) || errors.As(err, &field) && field.Field == "job_id" {
		return webui.NotFound("Job not found: " + webui.Plain(clip.Bytes(id, 100)) + ". Jobs are deleted after the time of the setting jobs.keep.")
	}
	return err
}

// errEnough stops a comparison at its limit.
var errEnough = errors.New("enough was compared")

const (
	comparedMost   = 20_000 // items of both jobs
	comparedShown  = 200    // that differ
	differenceText = 200    // bytes
)

type compareData struct {
	Before  string         // ID of the other job
	Count   map[string]int // by change
	Rows    []jobs.Difference
	Partial bool // not all items were compared
}

// compare returns the differences between the items of two jobs.
func (p *pages) compare(ctx context.Context, before, id string) (*compareData, error) {
	d := &compareData{Before: before, Count: map[string]int{}}
	looked := 0
	err := p.Jobs.Compare(ctx, before, id, func(diff jobs.Difference) error {
		if looked++; looked > comparedMost {
			return errEnough
		}
		d.Count[diff.Change]++
		if diff.Change != jobs.ChangeSame && len(d.Rows) < comparedShown {
			d.Rows = append(d.Rows, diff)
		}
		return nil
	})
	if d.Partial = errors.Is(err, errEnough); err != nil && !d.Partial {
		return nil, noJob(before, err)
	}
	return d, nil
}
