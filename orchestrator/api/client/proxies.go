package client

import (
	"net/http"

	"muster/proxies"
)

// ProxyFilter selects proxies of the pool.
type ProxyFilter struct {
	Protocol   []string `query:"protocol" enum:"http,https,socks4,socks4a,socks5" maxItems:"5" doc:"any of these"`
	Country    []string `query:"country" minLength:"2" maxLength:"2" maxItems:"300" doc:"any of these two-letter codes" example:"BG"`
	Anonymity  string   `query:"anonymity" enum:"transparent,anonymous,elite" default:"anonymous" doc:"at least this grade"`
	HTTPS      bool     `query:"https" doc:"only proxies that can tunnel TLS"`
	MaxLatency string   `query:"max_latency" maxLength:"20" doc:"a duration, as in 800ms" example:"800ms"`
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
