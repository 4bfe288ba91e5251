package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"muster/proxies"
)

// ProxyFilter selects proxies of the pool.
type ProxyFilter struct {
	Protocols  []string      // any of http, https, socks4, socks4a and socks5. Defaults to all.
	Countries  []string      // any of these two-letter codes. Defaults to all.
	Anonymity  string        // at least transparent, anonymous or elite. Defaults to anonymous.
	HTTPS      bool          // only proxies that can tunnel TLS
	MaxLatency time.Duration // Defaults to any.
	Site       string        // with the health at a site: only proxies that were used or are banned there
	Banned     bool          // only proxies that are banned from all sites, or from Site
	Sort       string        // latency, score, ok, requests, checked, country or protocol. Defaults to latency.
	Limit      int           // number of proxies. Defaults to all.
}

// ProxySelection names proxies of the pool.
type ProxySelection struct {
	Proxies []string `json:"proxies" minItems:"1" maxItems:"1000" minLength:"1" maxLength:"2000" doc:"ids, URLs, host:port, or a host for all of its ports" example:"http://192.0.2.7:8080"`
}

// ProxyBan bans proxies.
type ProxyBan struct {
	ProxySelection
	Site string `json:"site,omitempty" maxLength:"100" doc:"ban them from this site only. Defaults to all sites."`
	For  string `json:"for,omitempty" maxLength:"20" doc:"duration, such as 1h. Defaults to no end." example:"1h"`
}

// ProxyUnban selects the bans to lift.
type ProxyUnban struct {
	ProxySelection
	Site string `json:"site,omitempty" maxLength:"100" doc:"lift the bans from this site only. Defaults to all bans."`
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

// Proxies lists the proxies of the pool. Passwords are left out.
func (c *Client) Proxies(ctx context.Context, f ProxyFilter) ([]proxies.Member, error) {
	query := url.Values{"limit": {"1000"}}
	if f.Limit > 0 {
		query.Set("limit", strconv.Itoa(min(f.Limit, 1000)))
	}
	for name, value := range map[string]string{
		"protocol": strings.Join(f.Protocols, ","), "country": strings.Join(f.Countries, ","), "anonymity": f.Anonymity, "site": f.Site, "sort": f.Sort,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if f.MaxLatency > 0 {
		query.Set("max_latency", f.MaxLatency.String())
	}
	if f.HTTPS {
		query.Set("https", "true")
	}
	if f.Banned {
		query.Set("banned", "true")
	}
	return all[proxies.Member](ctx, c, "/v1/proxies", query, f.Limit)
}

// ProxyStats counts the pool.
func (c *Client) ProxyStats(ctx context.Context) (s proxies.Stats, err error) {
	err = c.do(ctx, http.MethodGet, "/v1/proxies/stats", nil, nil, &s)
	return s, err
}

// ProxySources lists the sources of proxies by name: configured sources, and sources that earlier refreshes read.
func (c *Client) ProxySources(ctx context.Context) ([]ProxySource, error) {
	return all[ProxySource](ctx, c, "/v1/proxies/sources", nil, 0)
}

// BanProxies bans proxies for a time, or until UnbanProxies is called.
func (c *Client) BanProxies(ctx context.Context, b ProxyBan) (done ChangedProxies, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/proxies/ban", nil, b, &done)
	return done, err
}

// UnbanProxies lifts bans of proxies.
func (c *Client) UnbanProxies(ctx context.Context, u ProxyUnban) (done ChangedProxies, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/proxies/unban", nil, u, &done)
	return done, err
}

// DeleteProxies removes proxies from the pool. Proxies that a source still lists return with the next refresh.
func (c *Client) DeleteProxies(ctx context.Context, s ProxySelection) (done ChangedProxies, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/proxies/delete", nil, s, &done)
	return done, err
}

// RefreshProxies starts a refresh of the pool, or returns the running one.
func (c *Client) RefreshProxies(ctx context.Context) (r StartedRefresh, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/proxies/refresh", nil, nil, &r)
	return r, err
}
