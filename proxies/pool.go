package proxies

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/addressfilter"
	"muster/proxies/probe"
	"muster/proxies/tunnel"
)

// ErrNoProxy says that no proxy of the pool can be used now. Its text says what to do.
var ErrNoProxy = errors.New("no usable proxy; run muster proxies refresh, or set fallback: wait or direct")

// PoolConfig says how a pool lends its proxies.
type PoolConfig struct {
	// Redis holds the pool. Needed.
	Redis redis.UniversalClient
	// Name tells pools on one Redis apart. Defaults to "{muster:proxies}"; the braces keep it on one slot of a cluster.
	Name string
	// MaxFails is how many failures in a row take a proxy out; a timeout is half of one. Defaults to 3.
	MaxFails float64
	// MaxInFlight is how many requests one proxy carries at once, in the whole fleet: each process that uses the pool may
	// have an equal share of them, at least one. A process that comes or goes is known to all after SyncEvery. Defaults to 32.
	MaxInFlight int
	// MaxTransports is how many proxies keep connections open. Defaults to 256.
	MaxTransports int
	// SyncEvery is how old the process's view of the pool may be. Defaults to 1 s.
	SyncEvery time.Duration
	// FlushEvery is how long reports are gathered before they are written. Defaults to 100 ms.
	FlushEvery time.Duration
	// ConnectTimeout and HandshakeTimeout bound the way to and through a proxy. Default to 8 s and 10 s.
	ConnectTimeout, HandshakeTimeout time.Duration
	// HeaderTimeout bounds the wait for the head of an answer. Defaults to 30 s.
	HeaderTimeout time.Duration
	// TLS is used towards targets. Defaults to the system's roots, always verified.
	TLS *tls.Config
	// Filter says which addresses that are not public the names of proxies may stand for. A proxy that is written as an
	// address or localhost is connected to in any case. Defaults to none.
	Filter *addressfilter.Filter
	// Dial reaches proxies. Defaults to a net.Dialer with Filter.
	Dial tunnel.DialFunc
	// Logger defaults to none.
	Logger *slog.Logger
}

func (c PoolConfig) withDefaults() PoolConfig {
	c.Name = cmp.Or(c.Name, "{muster:proxies}")
	c.MaxFails = cmp.Or(c.MaxFails, 3)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, 32)
	c.MaxTransports = cmp.Or(c.MaxTransports, 256)
	c.SyncEvery = cmp.Or(c.SyncEvery, time.Second)
	c.FlushEvery = cmp.Or(c.FlushEvery, 100*time.Millisecond)
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, 8*time.Second)
	c.HandshakeTimeout = cmp.Or(c.HandshakeTimeout, 10*time.Second)
	c.HeaderTimeout = cmp.Or(c.HeaderTimeout, 30*time.Second)
	if c.Dial == nil {
		c.Dial = c.Filter.DialNames(&net.Dialer{})
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Pool is the live proxies. Its records and their health are in Redis, where all processes share them; each process
// picks from a view of its own, which it brings up to date with what has changed, and gathers its reports. Close it.
type Pool struct {
	cfg PoolConfig
	rdb redis.UniversalClient
	id  string // of this process among those that use the pool

	syncing sync.Mutex // held by the one that brings the view up to date

	mu         sync.Mutex // guards the fields below
	members    map[string]*member
	order      []*member // in no order, for random access; swapped on removal
	changed    int       // grows with every change of a member
	listed     int       // the state of changed that shortlists are of
	shortlists map[string]*shortlist
	scopes     map[string]*scope
	syncedAt   time.Time
	picking    bool // since the last sync
	share      int  // of PoolConfig.MaxInFlight
	stickies   map[string]*sticky
	kept       map[string]int       // proxy → how many sessions keep to it
	bans       map[string]time.Time // by banField; zero is for good
	transports *transports
	reports    map[string][]report // by site
	reported   int                 // how many are in reports
	flushTimer *time.Timer
	closed     bool

	flushing sync.WaitGroup
	warned   atomic.Int64 // unix s when the log last said that requests go directly
}

// member is a proxy in the view.
type member struct {
	Proxy
	at       int // in Pool.order
	all      Health
	inFlight int
	uses     int64
}

// scope is a site as the view knows it, or one of the two scopes of the pool as a whole.
type scope struct {
	version int64
	usedAt  time.Time
	health  map[string]Health
}

// NewPool returns a pool; it does no I/O.
func NewPool(cfg PoolConfig) *Pool {
	cfg = cfg.withDefaults()
	p := &Pool{cfg: cfg, rdb: cfg.Redis, id: rand.Text(), share: cfg.MaxInFlight, members: map[string]*member{}, shortlists: map[string]*shortlist{}, scopes: map[string]*scope{}, stickies: map[string]*sticky{}, kept: map[string]int{}, reports: map[string][]report{}}
	p.transports = newTransports(cfg)
	return p
}

// Close writes what has been reported and closes idle connections.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	if p.flushTimer != nil && p.flushTimer.Stop() {
		p.flushing.Done()
	}
	p.mu.Unlock()
	p.flushing.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := p.Flush(ctx)
	_ = p.rdb.ZRem(ctx, usersKey(p.cfg.Name), p.id).Err() // or its share becomes free a little later
	p.transports.close()
	return err
}

//go:embed lua/publish.lua
var publishLua string

//go:embed lua/remove.lua
var removeLua string

//go:embed lua/report.lua
var reportLua string

var (
	publishCmd = redis.NewScript(publishLua)
	removeCmd  = redis.NewScript(removeLua)
	reportCmd  = redis.NewScript(reportLua)
)

// poolKeys are the keys that all scripts share, in their order.
func (p *Pool) poolKeys() []string {
	name := p.cfg.Name
	return []string{recordsKey(name), changesKey(name, recordsScope), versionKey(name), healthKey(name, ""), changesKey(name, ""), archiveKey(name), archivedKey(name)}
}

// Publish puts the accepted ones among the results into the pool and takes those that were in it and failed out of it.
// It may be called with results as they come. It returns how many were not there before.
func (p *Pool) Publish(ctx context.Context, results ...probe.Result) (added int, err error) {
	members := make([]Proxy, 0, len(results))
	var gone []string
	for _, r := range results {
		if r.Accepted() {
			members = append(members, proxyOf(r))
		} else {
			gone = append(gone, candidateID(r.Candidate))
		}
	}
	if added, err = p.put(ctx, members); err != nil {
		return added, err
	}
	_, err = p.Remove(ctx, gone...)
	return added, err
}

// Add puts proxies into the pool without a check; their ids are set.
func (p *Pool) Add(ctx context.Context, proxies ...Proxy) (added int, err error) {
	for i := range proxies {
		proxies[i].ID = proxyID(proxies[i])
	}
	return p.put(ctx, proxies)
}

func (p *Pool) put(ctx context.Context, proxies []Proxy) (added int, err error) {
	for chunk := range slices.Chunk(proxies, 200) {
		args := []any{time.Now().UnixMilli(), changesKept}
		for _, proxy := range chunk {
			record, err := json.Marshal(proxy)
			if err != nil {
				return added, fmt.Errorf("encode proxy %s: %w", proxy, err)
			}
			args = append(args, proxy.ID, record, proxy.LatencyMS)
		}
		n, err := publishCmd.Run(ctx, p.rdb, p.poolKeys(), args...).Int()
		if err != nil {
			return added, fmt.Errorf("publish proxies: %w", err)
		}
		added += n
	}
	p.stale()
	return added, nil
}

// Remove takes proxies out by id. It returns how many were in the pool.
func (p *Pool) Remove(ctx context.Context, ids ...string) (removed int, err error) {
	for chunk := range slices.Chunk(ids, 500) {
		args := []any{time.Now().UnixMilli(), changesKept}
		for _, id := range chunk {
			args = append(args, id)
		}
		n, err := removeCmd.Run(ctx, p.rdb, p.poolKeys(), args...).Int()
		if err != nil {
			return removed, fmt.Errorf("remove proxies: %w", err)
		}
		removed += n
	}
	p.stale()
	return removed, nil
}

// stale makes the next pick look at Redis again.
func (p *Pool) stale() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.syncedAt = time.Time{}
}

// Count is how many proxies are in the pool.
func (p *Pool) Count(ctx context.Context) (int, error) {
	n, err := p.rdb.HLen(ctx, recordsKey(p.cfg.Name)).Result()
	if err != nil {
		return 0, fmt.Errorf("count proxies: %w", err)
	}
	return int(n), nil
}

// Usable is how many of them hide our address.
func (p *Pool) Usable(ctx context.Context) (int, error) {
	if err := p.sync(ctx, nil, true); err != nil {
		return 0, fmt.Errorf("count usable proxies: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n, now, f := 0, time.Now(), Filter{}
	for _, m := range p.order {
		if f.takes(&m.Proxy) && !p.bannedNow(m.ID, "", now) {
			n++
		}
	}
	return n, nil
}

// Member is a proxy with its health over all sites, and at the site of the list if one was named.
type Member struct {
	Proxy
	Health      Health    `json:"health"`
	SiteHealth  *Health   `json:"site_health,omitempty"` // nil when the site has not seen the proxy
	Score       float64   `json:"score"`                 // with the site of the list, as a pick for it would weigh it
	Banned      bool      `json:"banned,omitzero"`       // from all sites, and out of Usable and Export for as long; or from the site of the list
	BannedUntil time.Time `json:"banned_until,omitzero"` // zero is for good
}

// MarshalJSON leaves the password out: a listing is for people. Export writes it, into a file of its own.
func (m Member) MarshalJSON() ([]byte, error) {
	type plain Member
	m.Password = ""
	return json.Marshal(plain(m))
}

// List returns the proxies that f takes, the fastest first, those without a latency last.
func (p *Pool) List(ctx context.Context, f Filter) ([]Member, error) {
	return p.ListAt(ctx, "", f)
}

// ListAt is List with the health and the bans at a site too. With "" it is List.
func (p *Pool) ListAt(ctx context.Context, site string, f Filter) ([]Member, error) {
	if err := p.sync(ctx, []string{site}, true); err != nil {
		return nil, fmt.Errorf("list proxies: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	seen := p.scopeOf(site).health
	var out []Member
	for _, m := range p.order {
		until, banned := p.bannedUntil(m.ID, site, now)
		if !f.takes(&m.Proxy) || banned && !f.Banned {
			continue
		}
		member := Member{Proxy: m.Proxy, Health: m.all, Score: score(m.all, seen[m.ID], m.LatencyMS, now), Banned: banned, BannedUntil: until}
		if h, ok := seen[m.ID]; ok {
			member.SiteHealth = &h
		}
		out = append(out, member)
	}
	slices.SortFunc(out, func(a, b Member) int { return compareLatency(a.Proxy, b.Proxy) })
	return out, nil
}

// SiteHealth returns the health of proxies with one site, by id.
func (p *Pool) SiteHealth(ctx context.Context, site string) (map[string]Health, error) {
	all, err := p.rdb.HGetAll(ctx, healthKey(p.cfg.Name, site)).Result()
	if err != nil {
		return nil, fmt.Errorf("read health with %s: %w", site, err)
	}
	out := map[string]Health{}
	for id, text := range all {
		if h, err := parseHealth(text); err == nil {
			out[id] = h
		}
	}
	return out, nil
}

// sync brings the view up to date when it is older than SyncEvery, or always when now is set. Of several callers one
// does it; the others go on with what there is, except before the first time.
func (p *Pool) sync(ctx context.Context, sites []string, now bool) error {
	p.mu.Lock()
	fresh := !now && time.Since(p.syncedAt) < p.cfg.SyncEvery
	for _, site := range sites {
		if s := p.scopes[site]; s == nil {
			p.scopes[site] = &scope{version: -1, usedAt: time.Now(), health: map[string]Health{}}
			fresh = false
		} else {
			s.usedAt = time.Now()
		}
	}
	first := p.scopes[recordsScope] == nil || now || p.syncedAt.IsZero()
	p.mu.Unlock()
	if fresh {
		return nil
	}
	if first {
		p.syncing.Lock()
	} else if !p.syncing.TryLock() {
		return nil
	}
	defer p.syncing.Unlock()
	if !now {
		p.mu.Lock()
		done := time.Since(p.syncedAt) < p.cfg.SyncEvery
		for _, site := range sites {
			done = done && p.scopes[site].version >= 0
		}
		p.mu.Unlock()
		if done { // by the one we waited for
			return nil
		}
	}
	return p.update(ctx)
}

// update reads what has changed in every scope of the view. The caller holds syncing.
func (p *Pool) update(ctx context.Context) error {
	begun := time.Now()
	p.mu.Lock()
	versions := map[string]int64{recordsScope: -1, "": -1}
	for name, s := range p.scopes {
		if name != recordsScope && name != "" && time.Since(s.usedAt) > time.Hour {
			delete(p.scopes, name)
			continue
		}
		versions[name] = s.version
	}
	p.mu.Unlock()
	names := []string{recordsScope, ""}
	for name := range versions {
		if name != recordsScope && name != "" {
			names = append(names, name)
		}
	}
	for _, name := range names {
		if err := p.updateScope(ctx, name, versions[name]); err != nil {
			return fmt.Errorf("read the pool: %w", err)
		}
	}
	bans, err := p.Bans(ctx)
	if err != nil {
		return err
	}
	share, err := p.takeShare(ctx)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.share = share
	p.bans = make(map[string]time.Time, len(bans))
	for _, ban := range bans {
		p.bans[banField(ban.ID, ban.Site)] = ban.Until
	}
	p.syncedAt = begun
	return nil
}

// sharing is how long after its last pick a process still counts among those that share proxies.
const sharing = 5 * time.Second

// takeShare tells the others that this process picks, if it does, and returns what is its own of MaxInFlight.
func (p *Pool) takeShare(ctx context.Context) (int, error) {
	p.mu.Lock()
	picking := p.picking
	p.picking = false
	p.mu.Unlock()
	key, now := usersKey(p.cfg.Name), time.Now()
	var others *redis.IntCmd
	if _, err := p.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		if picking {
			pipe.ZAdd(ctx, key, redis.Z{Score: float64(now.UnixMilli()), Member: p.id})
		}
		pipe.ZRemRangeByScore(ctx, key, "-inf", strconv.FormatInt(now.Add(-sharing).UnixMilli(), 10))
		others = pipe.ZCard(ctx, key)
		return nil
	}); err != nil {
		return 0, fmt.Errorf("share the pool: %w", err)
	}
	return max(1, p.cfg.MaxInFlight/max(1, int(others.Val()))), nil
}

// updateScope reads a scope whole when since is negative, or else what has changed after since.
func (p *Pool) updateScope(ctx context.Context, name string, since int64) error {
	if since >= 0 {
		ids, version, ok, err := p.changes(ctx, name, since)
		if err != nil {
			return err
		}
		if ok {
			return p.readScope(ctx, name, ids, version)
		}
	}
	version, err := p.rdb.Get(ctx, versionKey(p.cfg.Name)).Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	values := map[string]string{}
	for cursor := uint64(0); ; {
		pairs, next, err := p.rdb.HScan(ctx, p.scopeKey(name), cursor, "", 2000).Result()
		if err != nil {
			return err
		}
		for i := 0; i+1 < len(pairs); i += 2 {
			values[pairs[i]] = pairs[i+1]
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.apply(name, true, version, values)
	return nil
}

// scopeKey is the hash of a scope.
func (p *Pool) scopeKey(name string) string {
	if name == recordsScope {
		return recordsKey(p.cfg.Name)
	}
	return healthKey(p.cfg.Name, name)
}

// changes returns what has changed in a scope after a version, and up to which; false when that is not remembered any more.
func (p *Pool) changes(ctx context.Context, name string, since int64) (ids []string, version int64, ok bool, err error) {
	key := changesKey(p.cfg.Name, name)
	entries, err := p.rdb.XRangeN(ctx, key, strconv.FormatInt(since, 10)+"-1", "+", changesKept).Result()
	if err != nil || len(entries) == 0 {
		return nil, since, true, err
	}
	if len(entries) >= changesKept { // as many as are surely kept: there may have been more
		return nil, since, false, nil
	}
	seen := map[string]bool{}
	for _, entry := range entries {
		number, _, _ := strings.Cut(entry.ID, "-")
		if version, err = strconv.ParseInt(number, 10, 64); err != nil {
			return nil, since, false, fmt.Errorf("entry %s of %s: %w", entry.ID, key, err)
		}
		list, _ := entry.Values["ids"].(string)
		for id := range strings.SplitSeq(list, " ") {
			if !seen[id] {
				seen[id] = true
				ids = append(ids, id)
			}
		}
	}
	return ids, version, true, nil
}

// readScope brings some members of a scope up to date.
func (p *Pool) readScope(ctx context.Context, name string, ids []string, version int64) error {
	values := make(map[string]string, len(ids)) // id → value, "" when it is gone
	for chunk := range slices.Chunk(ids, 1000) {
		found, err := p.rdb.HMGet(ctx, p.scopeKey(name), chunk...).Result()
		if err != nil {
			return err
		}
		for i, id := range chunk {
			values[id], _ = found[i].(string)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.apply(name, false, version, values)
	return nil
}

// apply puts what was read into the view. The caller holds mu.
func (p *Pool) apply(name string, whole bool, version int64, values map[string]string) {
	s := p.scopes[name]
	if s == nil {
		s = &scope{usedAt: time.Now(), health: map[string]Health{}}
		p.scopes[name] = s
	}
	s.version = version
	if name == recordsScope {
		if whole {
			for id := range p.members {
				if values[id] == "" {
					p.drop(id)
				}
			}
		}
		for id, record := range values {
			var proxy Proxy
			if record == "" || json.Unmarshal([]byte(record), &proxy) != nil || proxy.ID != id {
				p.drop(id)
				continue
			}
			if m := p.members[id]; m != nil {
				m.Proxy = proxy
			} else {
				m = &member{Proxy: proxy, all: unknown, at: len(p.order)}
				p.members[id] = m
				p.order = append(p.order, m)
			}
			p.changed++
		}
		return
	}
	if whole {
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
		} else if m := p.members[id]; m != nil {
			m.all = h
		}
	}
}

// drop takes a member out of the view. The caller holds mu.
func (p *Pool) drop(id string) {
	m := p.members[id]
	if m == nil {
		return
	}
	delete(p.members, id)
	last := p.order[len(p.order)-1]
	p.order[m.at], last.at = last, m.at
	p.order = p.order[:len(p.order)-1]
	p.changed++
	p.transports.evict(id)
	for _, s := range p.scopes {
		delete(s.health, id)
	}
}

// has tells whether the view has a proxy.
func (p *Pool) has(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.members[id] != nil
}

// Status is what is known of the pool as a whole.
type Status struct {
	RefreshedAt time.Time `json:"refreshed_at,omitzero"` // when a refresh last found proxies
	Stale       bool      `json:"stale"`                 // the last refresh found none, and the old ones stayed
	Candidates  int       `json:"candidates"`            // of the last refresh
	Alive       int       `json:"alive"`
	Usable      int       `json:"usable"`
}

// Status reads it.
func (p *Pool) Status(ctx context.Context) (Status, error) {
	values, err := p.rdb.HGetAll(ctx, statusKey(p.cfg.Name)).Result()
	if err != nil {
		return Status{}, fmt.Errorf("read the pool's status: %w", err)
	}
	number := func(name string) int { n, _ := strconv.Atoi(values[name]); return n }
	s := Status{Stale: values["stale"] == "1", Candidates: number("candidates"), Alive: number("alive"), Usable: number("usable")}
	if at := number("refreshed_at"); at > 0 {
		s.RefreshedAt = time.Unix(int64(at), 0)
	}
	return s, nil
}
