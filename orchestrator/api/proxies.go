package api

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/orchestrator/api/client"
	"muster/proxies"
)

// proxyOrders compare proxies for the orders of a list; equal ones stay ordered by latency.
var proxyOrders = map[string]func(a, b proxies.Member) int{
	"latency":  func(proxies.Member, proxies.Member) int { return 0 },
	"score":    func(a, b proxies.Member) int { return cmp.Compare(b.Score, a.Score) },
	"ok":       func(a, b proxies.Member) int { return cmp.Compare(b.ShownHealth().OK, a.ShownHealth().OK) },
	"requests": func(a, b proxies.Member) int { return cmp.Compare(b.ShownHealth().Requests, a.ShownHealth().Requests) },
	"checked":  func(a, b proxies.Member) int { return b.CheckedAt.Compare(a.CheckedAt) },
	"country":  func(a, b proxies.Member) int { return strings.Compare(a.Country, b.Country) },
	"protocol": func(a, b proxies.Member) int { return strings.Compare(a.Protocol, b.Protocol) },
}

// addProxies adds the operations on the pool of proxies.
func addProxies(s *server) {
	pool := s.cfg.Proxies
	implement(s, client.ListProxies, func(ctx context.Context, in *client.ProxyFilter) (client.Page[proxies.Member], error) {
		return listProxies(ctx, pool, in)
	})
	implement(s, client.GetProxyStats, func(ctx context.Context, _ *client.None) (proxies.Stats, error) { return pool.Stats(ctx) })
	implement(s, client.ListProxySources, func(ctx context.Context, _ *client.None) (out client.Page[client.ProxySource], err error) {
		yields, err := pool.Yields(ctx)
		if err != nil {
			return out, err
		}
		for _, name := range pool.SourceNames() {
			if _, read := yields[name]; !read {
				yields[name] = proxies.SourceYield{}
			}
		}
		out = client.Page[client.ProxySource]{Data: []client.ProxySource{}}
		for _, name := range slices.Sorted(maps.Keys(yields)) {
			out.Data = append(out.Data, client.ProxySource{Name: name, SourceYield: yields[name]})
		}
		return out, nil
	})
	implement(s, client.BanProxies, func(ctx context.Context, in *client.With[client.ProxyBan]) (out client.ChangedProxies, err error) {
		var d time.Duration
		if in.Body.For != "" {
			if d, err = time.ParseDuration(in.Body.For); err != nil || d <= 0 {
				return out, badField("body.for", "use a duration above 0, as in 1h")
			}
		}
		return onProxies(ctx, pool, in.Body.ProxySelection, func(ids []string) (int, error) {
			return len(ids), pool.Ban(ctx, in.Body.Site, d, ids...)
		})
	})
	implement(s, client.UnbanProxies, func(ctx context.Context, in *client.With[client.ProxyUnban]) (client.ChangedProxies, error) {
		return onProxies(ctx, pool, in.Body.ProxySelection, func(ids []string) (int, error) { return pool.Unban(ctx, in.Body.Site, ids...) })
	})
	implement(s, client.DeleteProxies, func(ctx context.Context, in *client.With[client.ProxySelection]) (client.ChangedProxies, error) {
		return onProxies(ctx, pool, in.Body, func(ids []string) (int, error) { return pool.Remove(ctx, ids...) })
	})
	implement(s, client.RefreshProxies, func(ctx context.Context, _ *client.Refresh) (client.StartedRefresh, error) {
		id, err := pool.StartRefresh(ctx)
		return client.StartedRefresh{JobID: id}, err
	})
}

func listProxies(ctx context.Context, pool *proxies.Service, in *client.ProxyFilter) (page client.Page[proxies.Member], err error) {
	f := proxies.Filter{Protocols: in.Protocol, Anonymity: in.Anonymity, HTTPS: in.HTTPS, Banned: true}
	for _, c := range in.Country {
		f.Countries = append(f.Countries, strings.ToUpper(c))
	}
	if in.MaxLatency != "" {
		if f.MaxLatency, err = time.ParseDuration(in.MaxLatency); err != nil || f.MaxLatency <= 0 {
			return page, badField("query.max_latency", "use a duration above 0, as in 800ms")
		}
	}
	first := 0
	if text, err := readCursor("proxies", in.Cursor); err != nil {
		return page, err
	} else if text != "" {
		if first, err = strconv.Atoi(text); err != nil || first < 0 {
			return page, badField("query.cursor", "invalid cursor; send next of the previous page")
		}
	}
	members, err := pool.ListAt(ctx, in.Site, f)
	if err != nil {
		return page, err
	}
	list := slices.DeleteFunc(members, func(m proxies.Member) bool {
		return in.Banned && !m.Banned || in.Site != "" && m.SiteHealth == nil && !m.Banned
	})
	slices.SortStableFunc(list, proxyOrders[in.Sort])
	first = min(first, len(list))
	last := min(first+in.Limit, len(list))
	page.Data = orEmpty(list[first:last])
	if last < len(list) {
		page.Next = makeCursor("proxies", strconv.Itoa(last))
	}
	return page, nil
}

// onProxies calls do with the ids of the selected proxies. If one of them is not in the pool, do is not called.
func onProxies(ctx context.Context, pool *proxies.Service, s client.ProxySelection, do func(ids []string) (int, error)) (out client.ChangedProxies, err error) {
	var ids []string
	for i, name := range s.Proxies {
		found, err := pool.Find(ctx, name)
		if err != nil {
			return out, err
		}
		if len(found) == 0 { // the name may contain a password
			p := problem(http.StatusNotFound, "body.proxies[%d]: not in the pool", i)
			p.Code = "proxy_not_found"
			return out, p
		}
		for _, m := range found {
			ids = append(ids, m.ID)
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	n, err := do(ids)
	return client.ChangedProxies{Changed: n, Proxies: ids}, err
}
