package proxies

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"
)

// A view is this process's copy of the pool: members, health, bans and their local state. It has the lifetime of the
// Pool and is read from Redis on use if it is too old.
type view struct {
	store  *store
	maxAge time.Duration               // PoolConfig.SyncEvery
	onDrop func(id string)             // called when a member is removed
	flush  func(context.Context) error // writes the reports of this process

	updating sync.Mutex // held by the goroutine that updates the view

	mu      sync.Mutex // guards the fields below, the members, and the state of the picker and of leases
	members map[string]*member
	order   []*member // in no particular order, for random access; changed on removal
	scopes  map[string]*scope
	bans    map[string]time.Time // by banField; zero means forever
	readAt  time.Time            // zero before the first read
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
	usedAt time.Time
	health map[string]Health    // nil before the first read
	failed map[string]time.Time // as in member, for this scope
}

func newView(s *store, cfg PoolConfig, onDrop func(id string)) *view {
	return &view{store: s, maxAge: cfg.SyncEvery, onDrop: onDrop, members: map[string]*member{}, scopes: map[string]*scope{}}
}

// expire makes the next refresh read Redis.
func (v *view) expire() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.readAt = time.Time{}
}

// refresh updates the view, including the named scopes, if it is older than maxAge or now is set. Of concurrent
// callers one updates it; the others use the current view, except before the first update.
func (v *view) refresh(ctx context.Context, scopes []string, now bool) error {
	v.mu.Lock()
	v.addScopes(scopes)
	fresh := !now && v.fresh(scopes)
	must := now || v.readAt.IsZero()
	v.mu.Unlock()
	switch {
	case fresh:
		return nil
	case must:
		v.updating.Lock()
	case !v.updating.TryLock():
		return nil
	}
	defer v.updating.Unlock()
	v.mu.Lock()
	fresh = !now && v.fresh(scopes) // updated by another goroutine
	v.mu.Unlock()
	if fresh {
		return nil
	}
	return v.update(ctx)
}

// addScopes adds scopes to the view. The caller holds mu.
func (v *view) addScopes(names []string) {
	for _, name := range names {
		if name == "" {
			continue
		}
		if v.scopes[name] == nil {
			v.scopes[name] = &scope{failed: map[string]time.Time{}}
		}
		v.scopes[name].usedAt = time.Now()
	}
}

// fresh reports whether the view is recent enough and has all the scopes. The caller holds mu.
func (v *view) fresh(scopes []string) bool {
	missing := func(name string) bool { return name != "" && v.scopes[name].health == nil }
	return time.Since(v.readAt) < v.maxAge && !slices.ContainsFunc(scopes, missing)
}

// scopeExpiry is the time after which an unused scope is removed from the view.
const scopeExpiry = time.Hour

// update writes the reports of this process and reads the pool and all scopes of the view. The caller holds updating.
func (v *view) update(ctx context.Context) error {
	begun := time.Now()
	if err := v.flush(ctx); err != nil {
		return err
	}
	v.mu.Lock()
	maps.DeleteFunc(v.scopes, func(_ string, s *scope) bool { return begun.Sub(s.usedAt) > scopeExpiry })
	names := slices.Collect(maps.Keys(v.scopes))
	v.mu.Unlock()
	records, healths, err := v.store.read(ctx, append(names, ""))
	if err != nil {
		return err
	}
	list, err := v.store.bans(ctx)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.bans = make(map[string]time.Time, len(list))
	for _, ban := range list {
		v.bans[banField(ban.ID, ban.Site)] = ban.Until
	}
	v.apply(records, healths[len(names)])
	for _, m := range v.order {
		if m.failed.Before(begun) {
			m.failed = time.Time{}
		}
	}
	for i, name := range names {
		s := v.scopes[name]
		s.health = make(map[string]Health, len(healths[i]))
		for id, text := range healths[i] {
			if h, err := parseHealth(text); err == nil {
				s.health[id] = h
			}
		}
		maps.DeleteFunc(s.failed, func(_ string, at time.Time) bool { return at.Before(begun) })
	}
	v.readAt = begun
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
		m.all = healthOr(healths[id])
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
	v.onDrop(id)
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
