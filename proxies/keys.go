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

// changesKey is a stream, an entry for each script that changed something: {version}-0, ids: proxy ids with spaces
// between, those of removed proxies included. The scope is that of healthKey, or recordsScope. Readers take the changes
// from it, and read everything when they are more than changesKept entries behind. It expires with its health.
func changesKey(pool, scope string) string { return pool + ":log:" + url.QueryEscape(scope) }

// changesKept is how many entries a stream of changes keeps at least.
const changesKept = 2000

// tunnelScope is the scope of the tunnels to a target, host:port; no site has such a name. It says which proxies open
// them: what passes through a tunnel is not seen.
func tunnelScope(target string) string { return "tunnel " + strings.ToLower(target) }

// recordsScope is the scope of changesKey for the records; no site has such a name.
const recordsScope = "*records*"

// versionKey is a counter that every change takes a number from. It has no expiry.
func versionKey(pool string) string { return pool + ":version" }

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

// usersKey is a sorted set: a process that picks from the pool → when it last did, in unix milliseconds. Members stay for
// userExpiry.
func usersKey(pool string) string { return pool + ":users" }

// trialKey is a string that the process which tries a proxy after its cooldown holds until the trial ends. It expires
// after 30 s.
func trialKey(pool, scope, id string) string {
	return pool + ":trial:" + url.QueryEscape(scope) + ":" + id
}
