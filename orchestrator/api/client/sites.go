package client

import (
	"net/http"

	"muster/proxies"
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

// ProxyFilter selects proxies of the pool.
type ProxyFilter struct {
	Protocol   []string `query:"protocol" enum:"http,https,socks4,socks4a,socks5" maxItems:"5" doc:"any of these"`
	Country    []string `query:"country" minLength:"2" maxLength:"2" maxItems:"300" doc:"any of these two-letter codes" example:"BG"`
	Anonymity  string   `query:"anonymity" enum:"transparent,anonymous,elite" default:"anonymous" doc:"at least this grade"`
	HTTPS      bool     `query:"https" cli:"-" doc:"only proxies that can tunnel TLS"`
	MaxLatency string   `query:"max_latency" cli:"-" maxLength:"20" doc:"a duration, as in 800ms" example:"800ms"`
	Site       string   `query:"site" maxLength:"100" doc:"only proxies that were used or are banned at a site, with their health there"`
	Banned     bool     `query:"banned" doc:"only proxies that are banned from all sites, or from site"`
	Sort       string   `query:"sort" enum:"latency,score,ok,requests,checked,country,protocol" default:"latency" doc:"equal ones are sorted by latency"`
	Limit      int      `query:"limit" default:"100" minimum:"1" maximum:"1000" doc:"proxies on a page"`
	Cursor     string   `query:"cursor" maxLength:"100" doc:"next of the previous page"`
}

// ProxySelection names proxies of the pool.
type ProxySelection struct {
	Proxies []string `json:"proxies" cli:"args" minItems:"1" maxItems:"1000" minLength:"1" maxLength:"2000" doc:"ids, URLs, host:port, or a host for all of its ports" example:"http://192.0.2.7:8080"`
}

// ProxyBan bans proxies.
type ProxyBan struct {
	ProxySelection
	Site string `json:"site,omitempty" cli:"site" maxLength:"100" doc:"ban them from this site only. Defaults to all sites."`
	For  string `json:"for,omitempty" cli:"for" maxLength:"20" doc:"duration, such as 1h. Defaults to no end." example:"1h"`
}

// ProxyUnban selects the bans to lift.
type ProxyUnban struct {
	ProxySelection
	Site string `json:"site,omitempty" cli:"site" maxLength:"100" doc:"lift the bans from this site only. Defaults to all bans."`
}

// ChangedProxies is the result of an operation on proxies.
type ChangedProxies struct {
	Changed int      `json:"changed"`
	Proxies []string `json:"proxies" doc:"ids of the selected proxies"`
}

// ProxySource is a source of proxies with its yield.
type ProxySource struct {
	Name string `json:"name"`
	proxies.SourceYield
}

// StartedRefresh is a refresh that runs.
type StartedRefresh struct {
	JobID string `json:"job_id"`
}

// Refresh is the input of RefreshProxies.
type Refresh struct {
	Body *struct{} `nameHint:"Refresh"`
}

// Operations on the pool of proxies.
var (
	ListProxies = Declare[ProxyFilter, Page[proxies.Member]]("GET /v1/proxies", "listProxies", "proxies", "List the proxies of the pool", Says("Passwords are left out."))

	GetProxyStats    = Declare[None, proxies.Stats]("GET /v1/proxies/stats", "getProxyStats", "proxies", "Count the proxies of the pool")
	ListProxySources = Declare[None, Page[ProxySource]]("GET /v1/proxies/sources", "listProxySources", "proxies", "List the sources of proxies with their yields")

	BanProxies    = Declare[With[ProxyBan], ChangedProxies]("POST /v1/proxies/ban", "banProxies", "proxies", "Ban proxies from a site or from all sites", Fails(http.StatusNotFound))
	UnbanProxies  = Declare[With[ProxyUnban], ChangedProxies]("POST /v1/proxies/unban", "unbanProxies", "proxies", "Lift bans of proxies", Fails(http.StatusNotFound))
	DeleteProxies = Declare[With[ProxySelection], ChangedProxies]("POST /v1/proxies/delete", "deleteProxies", "proxies", "Remove proxies from the pool", Fails(http.StatusNotFound),
		Says("A working proxy that a source still lists returns with the next refresh; a ban excludes it."))
	RefreshProxies = Declare[Refresh, StartedRefresh]("POST /v1/proxies/refresh", "refreshProxies", "proxies", "Start a refresh of the pool, or return the running one",
		Fails(http.StatusConflict), Returns(http.StatusAccepted))
)
