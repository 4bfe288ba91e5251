package proxies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Detail is the data of a pool about one proxy.
type Detail struct {
	Member               // Health and Banned refer to all sites
	Removed time.Time    // time of removal within the last day; zero for a member of the pool
	Sites   []SiteDetail // of the requested sites that have used or banned it
}

// A SiteDetail is the data of one site about a proxy.
type SiteDetail struct {
	Site   string
	Health *Health // nil if the site has not used the proxy
	Score  float64 // the weight in a pick for the site
	Ban    *Ban    // nil if there is no ban from the site
}

// Lookup returns the data about a proxy by ID, including its data at the given sites. found is false if the proxy is
// not in the pool and was not removed within the last day. Lookup reads Redis, not the view of this process.
func (p *Pool) Lookup(ctx context.Context, id string, sites []string) (detail Detail, found bool, err error) {
	return p.store.lookup(ctx, id, sites, time.Now())
}

func (s *store) lookup(ctx context.Context, id string, sites []string, now time.Time) (d Detail, found bool, err error) {
	var record, archived, all *redis.StringCmd
	var removed *redis.FloatCmd
	bans := []string{id}
	seen := make([]*redis.StringCmd, len(sites))
	for _, site := range sites {
		bans = append(bans, banField(id, site))
	}
	var banned *redis.SliceCmd
	_, err = s.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		record, archived = pipe.HGet(ctx, recordsKey(s.name), id), pipe.HGet(ctx, archivedKey(s.name), id)
		removed, all = pipe.ZScore(ctx, archiveKey(s.name), id), pipe.HGet(ctx, healthKey(s.name, ""), id)
		banned = pipe.HMGet(ctx, bansKey(s.name), bans...)
		for i, site := range sites {
			seen[i] = pipe.HGet(ctx, healthKey(s.name, site), id)
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return d, false, fmt.Errorf("look up proxy: %w", err)
	}
	text := record.Val()
	if text == "" {
		text, d.Removed = archived.Val(), unixMilli(removed.Val())
	}
	if text == "" || json.Unmarshal([]byte(text), &d.Proxy) != nil {
		return d, false, nil
	}
	d.Health = healthOr(all.Val())
	d.Score = score(d.Health, Health{}, d.LatencyMS, now)
	if ban := banOf(banned.Val()[0], id, "", now); ban != nil {
		d.Banned, d.BannedUntil = true, ban.Until
	}
	for i, site := range sites {
		v := SiteDetail{Site: site, Ban: banOf(banned.Val()[i+1], id, site, now)}
		if text := seen[i].Val(); text != "" {
			h := healthOr(text)
			v.Health, v.Score = &h, score(d.Health, h, d.LatencyMS, now)
		}
		if v.Health != nil || v.Ban != nil {
			d.Sites = append(d.Sites, v)
		}
	}
	return d, true, nil
}

// healthOr returns the parsed health, or unknownHealth if text is missing or damaged.
func healthOr(text string) Health {
	h, err := parseHealth(text)
	if err != nil {
		return unknownHealth()
	}
	return h
}

// banOf returns the ban in a field of the hash of bans, or nil without an active one.
func banOf(value any, id, site string, now time.Time) *Ban {
	text, _ := value.(string)
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil
	}
	ban := &Ban{ID: id, Site: site}
	if ms > 0 {
		if ban.Until = time.UnixMilli(ms); !now.Before(ban.Until) {
			return nil
		}
	}
	return ban
}

// candidate returns the candidate for a recheck, which does not count for its sources.
func (d Detail) candidate() Candidate {
	c := d.Proxy.Candidate()
	c.Known, c.Unlisted = d.Removed.IsZero(), true
	return c
}
