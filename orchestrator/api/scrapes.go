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

type scrapesInput struct {
	Site  string `query:"site" maxLength:"100" doc:"only scrapes of this site"`
	Limit int    `query:"limit" default:"50" minimum:"1" maximum:"1000" doc:"the newest of the last seven days"`
}

// ScrapePath is the path of a scrape.
type ScrapePath struct {
	ID string `path:"id" maxLength:"200" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" patternDescription:"the id of a scrape" doc:"id of the scrape" example:"scrape_shop_1f0e6b1c"`
}

type changeScrapeInput struct {
	ScrapePath
	Body *struct{} `nameHint:"ScrapeChange"`
}

// addScrapes adds the operations on scrapes.
func addScrapes(s *server) {
	scrapes := s.cfg.Sites
	op := describe(s, http.MethodPost, "/v1/scrapes", "startScrape", tagSites, "Start a scrape of a site", http.StatusNotFound, http.StatusConflict)
	op.Description = "While the same scrape of the site is running, it is returned instead. One with other options is a 409."
	op.DefaultStatus = http.StatusAccepted
	route(s, op, maxBody, func(ctx context.Context, in *request[client.NewScrape]) (*startedScrapeOutput, error) {
		run, err := scrapes.Send(ctx, in.Body.Site, sites.ScrapeOptions{Limit: in.Body.Limit, Direct: in.Body.Direct, CSV: in.Body.CSV})
		joined := errors.Is(err, tasks.ErrDuplicate)
		if err != nil && !joined {
			return nil, err
		}
		return &startedScrapeOutput{"/v1/scrapes/" + run.ID(), client.StartedScrape{JobID: run.ID(), Joined: joined}}, nil
	})
	op = describe(s, http.MethodGet, "/v1/scrapes", "listScrapes", tagSites, "List scrapes, the newest first")
	route(s, op, 0, body(func(ctx context.Context, in *scrapesInput) (client.Page[sites.Job], error) {
		return pageOf(scrapes.Jobs(ctx, in.Site, in.Limit))
	}))
	op = describe(s, http.MethodGet, "/v1/scrapes/{id}", "getScrape", tagSites, "Get a scrape", http.StatusNotFound)
	route(s, op, 0, body(func(ctx context.Context, in *ScrapePath) (sites.Job, error) {
		return scrapes.Job(ctx, in.ID)
	}))
	op = describe(s, http.MethodPost, "/v1/scrapes/{id}/cancel", "cancelScrape", tagSites, "Cancel a scrape", http.StatusNotFound, http.StatusConflict)
	route(s, op, maxBody, body(func(ctx context.Context, in *changeScrapeInput) (out sites.Job, err error) {
		if err := scrapes.Cancel(ctx, in.ID); err != nil {
			return out, err
		}
		return scrapes.Job(ctx, in.ID)
	}))
	op = describe(s, http.MethodPost, "/v1/scrapes/{id}/resume", "resumeScrape", tagSites, "Start a scrape that continues an ended one", http.StatusNotFound, http.StatusConflict)
	op.Description = "It fetches the pages that failed or were not fetched, and adds records to the same files."
	op.DefaultStatus = http.StatusAccepted
	route(s, op, maxBody, func(ctx context.Context, in *changeScrapeInput) (*startedScrapeOutput, error) {
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
