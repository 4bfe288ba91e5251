package proxies

import (
	"net/url"
	"strings"
)

// All keys of a pool share a hash tag, so that its scripts work on a cluster.

// recordsKey is a hash: proxy id → the proxy as JSON. It has no expiry; remove.lua and report.lua delete dead proxies.
func recordsKey(pool string) string { return pool + ":records" }

// healthKey is a hash: proxy id → "ok n fails last_ok last_fail until latency", maintained by report.lua. The scope
// is a site, the tunnels to a target (tunnelScope), or "" for all sites. The hash of a site or target expires a day
// after its last report.
func healthKey(pool, scope string) string { return pool + ":health:" + url.QueryEscape(scope) }

// tunnelScope is the scope of the tunnels to a target, host:port; no site has such a name. It records which proxies
// open the tunnels, whose contents are unknown.
func tunnelScope(target string) string { return "tunnel " + strings.ToLower(target) }

// statusKey is a hash with the status of the pool: refreshed_at, stale, candidates, alive, usable. It has no expiry.
func statusKey(pool string) string { return pool + ":status" }

// reportKey is a string: the Report of a refresh as JSON. It expires a day after the refresh.
func reportKey(pool, job string) string { return pool + ":report:" + job }

// yieldsKey is a hash: name of a source → its SourceYield as JSON. It has no expiry.
func yieldsKey(pool string) string { return pool + ":yields" }

// bansKey is a hash: id of a proxy, a space and a site, or the id alone for all sites → end of the ban in unix
// milliseconds, 0 for never. It has no expiry; readers delete expired bans.
func bansKey(pool string) string { return pool + ":bans" }

// trialKey is a string held by the process that tests a proxy after its cooldown, until the trial ends. It expires
// after 30 s.
func trialKey(pool, scope, id string) string {
	return pool + ":trial:" + url.QueryEscape(scope) + ":" + id
}
