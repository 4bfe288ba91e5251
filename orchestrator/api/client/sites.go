package client

import (
	"net/http"

	"muster/sites"
)

// NewScrape is a scrape to start.
type NewScrape struct {
	Site   string `json:"site" minLength:"1" maxLength:"100" example:"quotes.toscrape.com"`
	Limit  int    `json:"limit,omitempty" minimum:"0" maximum:"1000000000" doc:"maximum number of records. Defaults to the limit of the definition."`
	Direct bool   `json:"direct,omitempty" doc:"use no proxies"`
	CSV    bool   `json:"csv,omitempty" doc:"also write a CSV file of each type of record at the end"`
	Full   bool   `json:"full,omitempty" doc:"fetch all pages, whatever refetch of the definition says"`
}

// StartedScrape is a scrape that was started or joined.
type StartedScrape struct {
	JobID  string `json:"job_id"`
	Joined bool   `json:"joined,omitempty" doc:"the same scrape was running already"`
}

// ScrapeFilter selects scrapes.
type ScrapeFilter struct {
	Site  string `query:"site" cli:"arg" maxLength:"100" doc:"only scrapes of this site"`
	Limit int    `query:"limit" default:"50" minimum:"1" maximum:"1000" doc:"the newest of the last seven days"`
}

// ScrapePath is the path of a scrape.
type ScrapePath struct {
	ID string `path:"id" maxLength:"200" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" patternDescription:"the id of a scrape" doc:"id of the scrape" example:"scrape_shop_1f0e6b1c"`
}

// SiteChange is the input of PauseSite and ResumeSite.
type SiteChange struct {
	Site string    `path:"site" maxLength:"100" doc:"name of the site" example:"quotes.toscrape.com"`
	Body *struct{} `nameHint:"SiteChange"`
}

// HistoryFilter selects records of a site's ledger.
type HistoryFilter struct {
	Site string `path:"site" maxLength:"100" doc:"name of the site" example:"quotes.toscrape.com"`
	Key  string `query:"key" cli:"arg" required:"true" minLength:"1" maxLength:"4096" doc:"the _key or the _url of a record"`
}

// ScrapeChange is the input of CancelScrape and ResumeScrape.
type ScrapeChange struct {
	ScrapePath
	Body *struct{} `nameHint:"ScrapeChange"`
}

// Operations on sites and their scrapes.
var (
	StartScrape = Declare[With[NewScrape], StartedScrape]("POST /v1/scrapes", "startScrape", "sites", "Start a scrape of a site", Fails(http.StatusNotFound, http.StatusConflict),
		Returns(http.StatusAccepted), Says("While the same scrape of the site is running, it is returned instead. One with other options is a 409."))
	ListScrapes  = Declare[ScrapeFilter, Page[sites.Job]]("GET /v1/scrapes", "listScrapes", "sites", "List scrapes, the newest first")
	GetScrape    = Declare[ScrapePath, sites.Job]("GET /v1/scrapes/{id}", "getScrape", "sites", "Get a scrape", Fails(http.StatusNotFound))
	CancelScrape = Declare[ScrapeChange, sites.Job]("POST /v1/scrapes/{id}/cancel", "cancelScrape", "sites", "Cancel a scrape", Fails(http.StatusNotFound, http.StatusConflict))
	ResumeScrape = Declare[ScrapeChange, StartedScrape]("POST /v1/scrapes/{id}/resume", "resumeScrape", "sites", "Start a scrape that continues an ended one", Fails(http.StatusNotFound, http.StatusConflict),
		Returns(http.StatusAccepted), Says("It fetches the pages that failed or were not fetched, and adds records to the same files."))

	ListSites  = Declare[None, Page[sites.State]]("GET /v1/sites", "listSites", "sites", "List the sites")
	GetHistory = Declare[HistoryFilter, Page[sites.History]]("GET /v1/sites/{site}/history", "getHistory", "sites", "Get the history of a record", Fails(http.StatusNotFound),
		Says("It is updated at the end of each scrape."))
	PauseSite  = Declare[SiteChange, None]("POST /v1/sites/{site}/pause", "pauseSite", "sites", "Stop fetching pages of a site, in all processes", Fails(http.StatusNotFound))
	ResumeSite = Declare[SiteChange, None]("POST /v1/sites/{site}/resume", "resumeSite", "sites", "Fetch pages of a paused site again", Fails(http.StatusNotFound))
)
