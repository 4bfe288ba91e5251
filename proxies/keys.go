package proxies

import (
	"net/url"
	"strings"
)

// All keys of a pool share one hash tag, so that its scripts work on a cluster.

// recordsKey is a hash: proxy id → the proxy as JSON. It has no expiry; prune takes out what is dead.
func recordsKey(pool string) string { return pool + ":records" }

// healthKey is a hash: proxy id → "ok n fails last_ok last_fail until latency", the numbers that report.lua keeps.
// The scope is a site, the tunnels to a target (tunnelScope), or "" for all of them together. The hash of a site or a target
// expires a week after its last report.
func healthKey(pool, scope string) string { return pool + ":health:" + url.QueryEscape(scope) }

// tunnelScope is the scope of the tunnels to a target, host:port; no site has such a name. It says which proxies open
// them: what passes through a tunnel is not seen.
func tunnelScope(target string) string { return "tunnel " + strings.ToLower(target) }

// archiveKey is a sorted set: id of a removed proxy → when, in unix milliseconds. Members stay for a day.
func archiveKey(pool string) string { return pool + ":archive" }

// archivedKey is a hash: id of an archived proxy → the proxy as JSON, to check it again. Members stay as in archiveKey.
func archivedKey(pool string) string { return pool + ":archived" }

// lookedKey is a sorted set: id of an archived proxy → when it was last checked, in unix milliseconds. Members stay for a day.
func lookedKey(pool string) string { return pool + ":looked" }

// statusKey is a hash about the pool as a whole: refreshed_at, stale, candidates, alive, usable. It has no expiry.
func statusKey(pool string) string { return pool + ":status" }

// reportKey is a string: the Report of a refresh as JSON. It expires a day after the refresh.
func reportKey(pool, job string) string { return pool + ":report:" + job }

// yieldsKey is a hash: name of a source → what it has yielded as JSON. It has no expiry.
func yieldsKey(pool string) string { return pool + ":yields" }

// bansKey is a hash: id of a proxy, a space and a site, or the id alone for all sites → until when it is banned, in unix
// milliseconds, 0 without end. It has no expiry; readers delete bans that have ended.
func bansKey(pool string) string { return pool + ":bans" }

// trialKey is a string that the process which tries a proxy after its cooldown holds until the trial ends. It expires
// after 30 s.
func trialKey(pool, scope, id string) string {
	return pool + ":trial:" + url.QueryEscape(scope) + ":" + id
}
