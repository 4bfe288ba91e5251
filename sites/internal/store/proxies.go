package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"muster/sites/report"
)

// AddResponse counts a response of a job through a proxy. good means that it was a page.
func AddResponse(ctx context.Context, rdb redis.UniversalClient, job, proxy string, good bool) error {
	field := "bad "
	if good {
		field = "good "
	}
	key := ProxyUsageKey(job)
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.HIncrBy(ctx, key, field+proxy, 1)
		p.Expire(ctx, key, Keep)
		return nil
	})
	if err != nil {
		return fmt.Errorf("count a proxy response: %w", err)
	}
	return nil
}

// ProxyUsage returns the counts of AddResponse, or nil if no proxy was used.
func ProxyUsage(ctx context.Context, rdb redis.UniversalClient, job string) (*report.ProxyUsage, error) {
	all, err := rdb.HGetAll(ctx, ProxyUsageKey(job)).Result()
	if err != nil {
		return nil, fmt.Errorf("count the proxies of job %s: %w", job, err)
	}
	proxies := map[string]report.Proxy{}
	for field, text := range all {
		kind, name, _ := strings.Cut(field, " ")
		n, _ := strconv.Atoi(text) // AddResponse stores only numbers
		p := proxies[name]
		p.Proxy = name
		p.Responses += n
		if kind == "bad" {
			p.Failures += n
		}
		proxies[name] = p
	}
	return report.UsageOf(slices.Collect(maps.Values(proxies))), nil
}
