package proxies

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A view is this process's copy of the pool: members, health, bans and their local state. It has the lifetime of the
// Pool. Each part is read from Redis on use if it is too old: the members, and the health at each of the most recently
// used sites.
type view struct {
	pool *Pool
	all  reading // of the members and bans

	mu      sync.Mutex // guards the fields below, the members, and the state of picks and of leases
	members map[string]*member
	order   []*member            // in no particular order, for random access; changed on removal
	scopes  map[string]*scope    // at most maxScopes
	bans    map[string]time.Time // by banField; zero means forever
}

// A reading is the last read of a part of a view.
type reading struct {
	updating sync.Mutex // held by the goroutine that reads the part
	at       time.Time  // zero before the first read; guarded by the view's mu
}

// A member is a proxy in the view.
type member struct {
	Proxy
	record   string // as in Redis
	at       int    // index in view.order
	all      Health
	failed   time.Time // time of the last reported failure that may be missing in Redis
	inFlight int       // requests of this process
}

// A scope is a site in the view, or the tunnels to a target.
type scope struct {
	reading
	usedAt time.Time
	health map[string]Health    // nil before the first read
	failed map[string]time.Time // as in member, for this scope
}

// maxScopes limits the scopes of a view: a gateway meets any number of hosts.
const maxScopes = 1000

// expire makes the next refresh read the members and bans.
func (v *view) expire() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.all.at = time.Time{}
}

// refresh reads the members and the named scopes if they are older than SyncEvery or now is set.
func (v *view) refresh(ctx context.Context, scopes []string, now bool) error {
	if err := v.renew(ctx, &v.all, now, v.readPool); err != nil {
		return err
	}
	for _, name := range scopes {
		if name == "" {
			continue
		}
		s := v.useScope(name)
		if err := v.renew(ctx, &s.reading, now, func(ctx context.Context, begun time.Time) error { return v.readScope(ctx, name, s, begun) }); err != nil {
			return err
		}
	}
	return nil
}

// renew writes the reports of this process and reads a part of the view if it is older than SyncEvery or now is set. Of
// concurrent callers one reads it; the others use the current part, except before the first read.
func (v *view) renew(ctx context.Context, r *reading, now bool, read func(ctx context.Context, begun time.Time) error) error {
	last := func() (at time.Time, fresh bool) {
		v.mu.Lock()
		defer v.mu.Unlock()
		return r.at, !now && time.Since(r.at) < v.pool.cfg.SyncEvery
	}
	switch at, fresh := last(); {
	case fresh:
		return nil
	case now, at.IsZero():
		r.updating.Lock()
	case !r.updating.TryLock():
		return nil
	}
	defer r.updating.Unlock()
	if _, fresh := last(); fresh { // read by another goroutine
		return nil
	}
	begun := time.Now()
	if err := v.pool.Flush(ctx); err != nil {
		return err
	}
	return read(ctx, begun)
}

// useScope returns the scope with a name. It replaces the least recently used one if there are too many.
func (v *view) useScope(name string) *scope {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.scopes[name]
	if s == nil {
		if len(v.scopes) >= maxScopes {
			byUse := func(a, b string) int { return v.scopes[a].usedAt.Compare(v.scopes[b].usedAt) }
			delete(v.scopes, slices.MinFunc(slices.Collect(maps.Keys(v.scopes)), byUse))
		}
		s = &scope{failed: map[string]time.Time{}}
		v.scopes[name] = s
	}
	s.usedAt = time.Now()
	return s
}

// readPool reads the members and bans.
func (v *view) readPool(ctx context.Context, begun time.Time) error {
	records, healths, err := v.pool.store.members(ctx)
	if err != nil {
		return err
	}
	bans, err := v.pool.bans(ctx)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.bans = bans
	v.apply(records, healths)
	for _, m := range v.order {
		if m.failed.Before(begun) {
			m.failed = time.Time{}
		}
	}
	v.all.at = begun
	return nil
}

// readScope reads the health in a scope.
func (v *view) readScope(ctx context.Context, name string, s *scope, begun time.Time) error {
	healths, err := v.pool.store.health(ctx, name)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	s.health, s.at = healths, begun
	maps.DeleteFunc(s.failed, func(_ string, at time.Time) bool { return at.Before(begun) })
	return nil
}

// apply replaces the members. Records that cannot be decoded are ignored. The caller holds mu.
func (v *view) apply(records, healths map[string]string) {
	for id := range v.members {
		if records[id] == "" {
			v.drop(id)
		}
	}
	for id, record := range records {
		m := v.members[id]
		if m == nil || m.record != record {
			var proxy Proxy
			if json.Unmarshal([]byte(record), &proxy) != nil || proxy.ID != id {
				v.drop(id)
				continue
			}
			if m == nil {
				m = &member{at: len(v.order)}
				v.members[id] = m
				v.order = append(v.order, m)
			}
			m.Proxy, m.record = proxy, record
		}
		m.all, _ = parseHealth(healths[id])
	}
}

// drop removes a member from the view. The caller holds mu.
func (v *view) drop(id string) {
	m := v.members[id]
	if m == nil {
		return
	}
	delete(v.members, id)
	last := v.order[len(v.order)-1]
	v.order[m.at], last.at = last, m.at
	v.order = v.order[:len(v.order)-1]
	v.pool.transports.evict(id)
}

// dropAll removes members from the view.
func (v *view) dropAll(ids []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, id := range ids {
		v.drop(id)
	}
}

// has reports whether a proxy is in the view.
func (v *view) has(id string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.members[id] != nil
}

// empty reports whether the view has no members.
func (v *view) empty() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.order) == 0
}

// scopeOf returns a scope of the view, or an empty one for "". The caller holds mu.
func (v *view) scopeOf(name string) *scope {
	if s := v.scopes[name]; s != nil && name != "" {
		return s
	}
	return &scope{}
}

// bannedUntil reports whether a proxy is banned from a site, and the end of the longest ban, zero for never. The
// caller holds mu.
func (v *view) bannedUntil(id, site string, now time.Time) (end time.Time, banned bool) {
	if len(v.bans) == 0 {
		return end, false
	}
	for _, field := range []string{id, banField(id, site)} {
		until, ok := v.bans[field]
		switch {
		case !ok, !until.IsZero() && !now.Before(until):
		case until.IsZero():
			return until, true
		default:
			banned = true
			if until.After(end) {
				end = until
			}
		}
	}
	return end, banned
}

// Health is the history of requests through a proxy, to one site or to all sites.
type Health struct {
	OK       float64   `json:"ok"`                 // exponentially weighted share of successes
	Requests int       `json:"requests"`           // number of requests
	Fails    float64   `json:"fails"`              // consecutive failures; a timeout counts half
	LastOK   time.Time `json:"last_ok,omitzero"`   //
	LastFail time.Time `json:"last_fail,omitzero"` //
	Until    time.Time `json:"until,omitzero"`     // suspended until
	Latency  float64   `json:"latency_ms"`         // moving average of the time to the first byte
}

// maxHealth limits stored numbers, the largest of which are times in milliseconds, to the range of time.Time in JSON:
// the year 9892.
const maxHealth = 250e12

// parseHealth parses the format of report.lua. With an error it returns the health of a proxy without reports.
func parseHealth(text string) (Health, error) {
	var n [8]float64 // the last number is optional and used by the script only
	i := 0
	for field := range strings.FieldsSeq(text) {
		v, err := strconv.ParseFloat(field, 64)
		if err != nil || i == len(n) || math.IsNaN(v) || math.Abs(v) > maxHealth {
			i = 0
			break
		}
		n[i] = v
		i++
	}
	if i < len(n)-1 {
		return Health{OK: 0.5}, fmt.Errorf("parse health %q", text)
	}
	return Health{OK: n[0], Requests: int(n[1]), Fails: n[2], LastOK: unixMilli(n[3]), LastFail: unixMilli(n[4]), Until: unixMilli(n[5]), Latency: n[6]}, nil
}

func unixMilli(ms float64) time.Time {
	if ms <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(ms))
}

// score returns the weight of a proxy: its success rate, adjusted for recent failures and latency. The health of a
// site is used if it has at least five requests.
func score(all, site Health, checked float64, now time.Time) float64 {
	h := all
	if site.Requests >= 5 {
		h = site
	}
	latency := cmp.Or(max(h.Latency, 0), max(checked, 0), 2000)
	fresh := 0.0
	if !h.LastOK.IsZero() {
		fresh = math.Exp2(-now.Sub(h.LastOK).Minutes() / 30)
	}
	slowness := min(max(latency/2000, 0.25), 4)
	return (0.7*h.OK + 0.3*h.OK*min(fresh, 1)) / math.Sqrt(slowness)
}
