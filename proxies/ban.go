package proxies

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"muster/internal/wrap"
)

// Ban excludes proxies from a site, or from all sites if site is "", for d. A d of 0 means forever. Checks and
// requests do not end a ban. The proxies stay in the pool and become available when the ban expires.
func (p *Pool) Ban(ctx context.Context, site string, d time.Duration, ids ...string) error {
	if len(ids) == 0 {
		return nil
	}
	defer p.view.expire()
	until := int64(0)
	if d > 0 {
		until = time.Now().Add(d).UnixMilli()
	}
	values := make([]any, 0, 2*len(ids))
	for _, id := range ids {
		values = append(values, banField(id, site), until)
	}
	return wrap.Err(p.rdb.HSet(ctx, bansKey(p.name), values...).Err(), "ban proxies")
}

// Unban removes bans from a site, or the bans from all sites if site is "". It returns the number of bans removed.
func (p *Pool) Unban(ctx context.Context, site string, ids ...string) (int, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	defer p.view.expire()
	fields := make([]string, len(ids))
	for i, id := range ids {
		fields[i] = banField(id, site)
	}
	n, err := p.rdb.HDel(ctx, bansKey(p.name), fields...).Result()
	return int(n), wrap.Err(err, "remove bans")
}

// bans returns the end of each active ban by banField, zero for never, and deletes expired bans.
func (s *store) bans(ctx context.Context) (map[string]time.Time, error) {
	texts, err := s.rdb.HGetAll(ctx, bansKey(s.name)).Result()
	if err != nil {
		return nil, fmt.Errorf("read bans: %w", err)
	}
	bans, over := make(map[string]time.Time, len(texts)), []string(nil)
	for field, text := range texts {
		ms, err := strconv.ParseInt(text, 10, 64)
		switch until := time.UnixMilli(ms); {
		case err != nil, ms != 0 && !time.Now().Before(until):
			over = append(over, field)
		case ms == 0:
			bans[field] = time.Time{}
		default:
			bans[field] = until
		}
	}
	if len(over) > 0 {
		if err := s.rdb.HDel(ctx, bansKey(s.name), over...).Err(); err != nil {
			return nil, fmt.Errorf("delete expired bans: %w", err)
		}
	}
	return bans, nil
}

// banField returns the hash field of a ban. IDs contain no space.
func banField(id, site string) string { return strings.TrimRight(id+" "+site, " ") }
