package proxies

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// view is this process's copy of the pool: its members, their health and bans, and how this process uses them. It lives
// as long as the Pool. It is read from Redis when it is used and too old.
type view struct {
	store       *store
	maxAge      time.Duration   // PoolConfig.SyncEvery
	maxInFlight int             // PoolConfig.MaxInFlight
	onDrop      func(id string) // called when a member leaves
	user        string          // of this process among those that use the pool

	updating sync.Mutex // held by the one that updates the view

	mu       sync.Mutex // guards the fields below, the members, and the state of the picker and of leases
	members  map[string]*member
	order    []*member // in no order, for random access; swapped on removal
	changed  int       // grows with every change of a member
	scopes   map[string]*scope
	bans     map[string]time.Time // by banField; zero is without end
	readAt   time.Time
	picked   bool // since the last update
	maxShare int  // of maxInFlight that is this process's own
}

// member is a proxy in the view.
type member struct {
	Proxy
	at       int // in view.order
	all      Health
	inFlight int // requests of this process
	uses     int64
}

// scope is a site in the view, the tunnels to a target, or one of the two scopes of the pool as a whole.
type scope struct {
	version int64
	usedAt  time.Time
	health  map[string]Health
}

func newView(s *store, cfg PoolConfig, onDrop func(id string)) *view {
	return &view{
		store: s, maxAge: cfg.SyncEvery, maxInFlight: cfg.MaxInFlight, onDrop: onDrop, user: rand.Text(), maxShare: cfg.MaxInFlight,
		members: map[string]*member{}, scopes: map[string]*scope{},
	}
}

// expire makes the next refresh read Redis.
func (v *view) expire() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.readAt = time.Time{}
}

// refresh updates the view, with the scopes named, when it is older than maxAge, or always with now. Of several callers
// one does it; the others use the view as it is, except before the first time.
func (v *view) refresh(ctx context.Context, scopes []string, now bool) error {
	v.mu.Lock()
	added := v.addScopes(scopes)
	fresh := !now && !added && time.Since(v.readAt) < v.maxAge
	must := now || v.scopes[recordsScope] == nil || v.readAt.IsZero()
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
	if !now && v.updatedMeanwhile(scopes) {
		return nil
	}
	return v.update(ctx)
}

// addScopes reports whether one of the scopes is not in the view yet. The caller holds mu.
func (v *view) addScopes(scopes []string) (added bool) {
	for _, name := range scopes {
		if s := v.scopes[name]; s != nil {
			s.usedAt = time.Now()
			continue
		}
		v.scopes[name] = &scope{version: -1, usedAt: time.Now(), health: map[string]Health{}}
		added = true
	}
	return added
}

// updatedMeanwhile reports whether another goroutine has updated the view with all the scopes.
func (v *view) updatedMeanwhile(scopes []string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	done := time.Since(v.readAt) < v.maxAge
	for _, name := range scopes {
		done = done && v.scopes[name].version >= 0
	}
	return done
}

// scopeExpiry is how long after its last use a scope stays in the view.
const scopeExpiry = time.Hour

// update reads what has changed in every scope of the view. The caller holds updating.
func (v *view) update(ctx context.Context) error {
	begun := time.Now()
	v.mu.Lock()
	names := []string{recordsScope, ""} // first: the health of others is of members
	versions := map[string]int64{recordsScope: -1, "": -1}
	for name, s := range v.scopes {
		shared := name == recordsScope || name == ""
		switch {
		case !shared && time.Since(s.usedAt) > scopeExpiry:
			delete(v.scopes, name)
			continue
		case !shared:
			names = append(names, name)
		}
		versions[name] = s.version
	}
	picked := v.picked
	v.picked = false
	v.mu.Unlock()

	for _, name := range names {
		if err := v.updateScope(ctx, name, versions[name]); err != nil {
			return fmt.Errorf("read the pool: %w", v.store.explain(err))
		}
	}
	list, err := v.store.bans(ctx)
	if err != nil {
		return err
	}
	bans := make(map[string]time.Time, len(list))
	for _, ban := range list {
		bans[banField(ban.ID, ban.Site)] = ban.Until
	}
	users, err := v.store.users(ctx, v.user, picked)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.bans, v.readAt, v.maxShare = bans, begun, max(1, v.maxInFlight/max(1, users))
	return nil
}

// updateScope reads a scope whole when since is negative, or else what has changed after since.
func (v *view) updateScope(ctx context.Context, name string, since int64) error {
	if since >= 0 {
		ids, version, ok, err := v.store.changes(ctx, name, since)
		if err != nil {
			return err
		}
		if ok {
			values, err := v.store.readSome(ctx, name, ids)
			if err == nil {
				v.apply(name, false, version, values)
			}
			return err
		}
	}
	values, version, err := v.store.readAll(ctx, name)
	if err == nil {
		v.apply(name, true, version, values)
	}
	return err
}

// apply puts values of a scope into the view: all of them, or some.
func (v *view) apply(name string, all bool, version int64, values map[string]string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.scopes[name]
	if s == nil {
		s = &scope{usedAt: time.Now(), health: map[string]Health{}}
		v.scopes[name] = s
	}
	s.version = version
	if name == recordsScope {
		v.applyRecords(all, values)
		return
	}
	if all {
		clear(s.health)
	}
	for id, text := range values {
		h, err := parseHealth(text)
		if err != nil {
			delete(s.health, id)
			continue
		}
		if name != "" {
			s.health[id] = h
		} else if m := v.members[id]; m != nil {
			m.all = h
		}
	}
}

// applyRecords puts records into the view. A record that cannot be read counts as gone. The caller holds mu.
func (v *view) applyRecords(all bool, records map[string]string) {
	if all {
		for id := range v.members {
			if records[id] == "" {
				v.drop(id)
			}
		}
	}
	for id, record := range records {
		var proxy Proxy
		if record == "" || json.Unmarshal([]byte(record), &proxy) != nil || proxy.ID != id {
			v.drop(id)
			continue
		}
		if m := v.members[id]; m != nil {
			m.Proxy = proxy
		} else {
			m = &member{Proxy: proxy, all: unknownHealth(), at: len(v.order)}
			v.members[id] = m
			v.order = append(v.order, m)
		}
		v.changed++
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
	v.changed++
	v.onDrop(id)
	for _, s := range v.scopes {
		delete(s.health, id)
	}
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

// notePick makes the next update count this process among those that use the pool.
func (v *view) notePick() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.picked = true
}

// scopeOf returns a scope of the view, an empty one for "". The caller holds mu.
func (v *view) scopeOf(name string) *scope {
	if s := v.scopes[name]; s != nil && name != "" {
		return s
	}
	return &scope{}
}

// bannedUntil reports whether a proxy may not be used for a site, and when the last of the bans ends, zero for never. The
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
