package api

import (
	"context"
	"errors"
	"net/http"

	"muster/orchestrator/api/client"
	"muster/sites"
	"muster/tasks"
)

type startedScrapeOutput struct {
	Location string `header:"Location" doc:"path of the scrape"`
	Body     client.StartedScrape
}

// addScrapes adds the operations on scrapes.
func addScrapes(s *server) {
	scrapes := s.cfg.Sites
	implementOutput(s, client.StartScrape, func(ctx context.Context, in *client.With[client.NewScrape]) (*startedScrapeOutput, error) {
		run, err := scrapes.Send(ctx, in.Body.Site, sites.ScrapeOptions{Limit: in.Body.Limit, Direct: in.Body.Direct, CSV: in.Body.CSV, Full: in.Body.Full})
		joined := errors.Is(err, tasks.ErrDuplicate)
		if err != nil && !joined {
			return nil, err
		}
		return &startedScrapeOutput{"/v1/scrapes/" + run.ID(), client.StartedScrape{JobID: run.ID(), Joined: joined}}, nil
	})
	implement(s, client.ListScrapes, func(ctx context.Context, in *client.ScrapeFilter) (client.Page[sites.Job], error) {
		return pageOf(scrapes.Jobs(ctx, in.Site, in.Limit))
	})
	implement(s, client.GetScrape, func(ctx context.Context, in *client.ScrapePath) (sites.Job, error) { return scrapes.Job(ctx, in.ID) })
	implement(s, client.CancelScrape, func(ctx context.Context, in *client.ScrapeChange) (out sites.Job, err error) {
		if err := scrapes.Cancel(ctx, in.ID); err != nil {
			return out, err
		}
		return scrapes.Job(ctx, in.ID)
	})
	implementOutput(s, client.ResumeScrape, func(ctx context.Context, in *client.ScrapeChange) (*startedScrapeOutput, error) {
		if err := scrapes.Resumable(ctx, in.ID); err != nil {
			return nil, err
		}
		run, err := scrapes.Resume(ctx, in.ID)
		if errors.Is(err, tasks.ErrDuplicate) {
			p := problem(http.StatusConflict, "scrape %s of the same site is running: wait for it, or cancel it", run.ID())
			p.Code = "scrape_running"
			return nil, p
		}
		if err != nil {
			return nil, err
		}
		return &startedScrapeOutput{"/v1/scrapes/" + run.ID(), client.StartedScrape{JobID: run.ID()}}, nil
	})
	change := func(do func(ctx context.Context, site string) error) func(context.Context, *client.SiteChange) error {
		return func(ctx context.Context, in *client.SiteChange) error {
			if err := scrapes.Site(ctx, in.Site); err != nil {
				return err
			}
			return do(ctx, in.Site)
		}
	}
	implementNone(s, client.PauseSite, change(scrapes.PauseSite))
	implementNone(s, client.ResumeSite, change(scrapes.ResumeSite))
}
