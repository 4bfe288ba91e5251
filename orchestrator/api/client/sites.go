package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"muster/sites"
)

// NewScrape is a scrape to start.
type NewScrape struct {
	Site   string `json:"site" minLength:"1" maxLength:"100" example:"quotes.toscrape.com"`
	Limit  int    `json:"limit,omitempty" minimum:"0" maximum:"1000000000" doc:"maximum of detail pages, and of records of a type from listing pages. Defaults to the limit of the definition."`
	Direct bool   `json:"direct,omitempty" doc:"use no proxies"`
	CSV    bool   `json:"csv,omitempty" doc:"also write a CSV file of each type of record at the end"`
}

// StartedScrape is a scrape that was started or joined.
type StartedScrape struct {
	JobID  string `json:"job_id"`
	Joined bool   `json:"joined,omitempty" doc:"the same scrape was running already"`
}

// StartScrape starts a scrape, or joins the running scrape with the same site and options.
func (c *Client) StartScrape(ctx context.Context, n NewScrape) (s StartedScrape, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/scrapes", nil, n, &s)
	return s, err
}

// Scrapes lists the newest scrapes of a site, or of all sites when it is "". limit is 1 to 1000.
func (c *Client) Scrapes(ctx context.Context, site string, limit int) ([]sites.Job, error) {
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	if site != "" {
		query.Set("site", site)
	}
	return all[sites.Job](ctx, c, "/v1/scrapes", query, limit)
}

// Scrape returns a scrape.
func (c *Client) Scrape(ctx context.Context, id string) (j sites.Job, err error) {
	err = c.do(ctx, http.MethodGet, "/v1/scrapes/"+url.PathEscape(id), nil, nil, &j)
	return j, err
}

// CancelScrape cancels a scrape. Records that it has found are written.
func (c *Client) CancelScrape(ctx context.Context, id string) (j sites.Job, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/scrapes/"+url.PathEscape(id)+"/cancel", nil, nil, &j)
	return j, err
}

// ResumeScrape starts a scrape that fetches the pages that failed or were not fetched in an ended one.
func (c *Client) ResumeScrape(ctx context.Context, id string) (s StartedScrape, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/scrapes/"+url.PathEscape(id)+"/resume", nil, nil, &s)
	return s, err
}

// SiteChange is the input of PauseSite and ResumeSite.
type SiteChange struct {
	Site string    `path:"site" maxLength:"100" doc:"name of the site" example:"quotes.toscrape.com"`
	Body *struct{} `nameHint:"SiteChange"`
}

// Operations on sites.
var (
	ListSites  = Declare[None, Page[sites.State]]("GET /v1/sites", "listSites", "sites", "List the sites")
	PauseSite  = Declare[SiteChange, None]("POST /v1/sites/{site}/pause", "pauseSite", "sites", "Stop fetching pages of a site, in all processes", Fails(http.StatusNotFound))
	ResumeSite = Declare[SiteChange, None]("POST /v1/sites/{site}/resume", "resumeSite", "sites", "Fetch pages of a paused site again", Fails(http.StatusNotFound))
)
