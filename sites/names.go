package sites

import (
	"context"
	"fmt"
	"slices"

	"muster/sites/internal/store"
)

// Names lists the sites of the registry and those that have a health or a pause in Redis, in order.
func (r *Reader) Names(ctx context.Context) ([]string, error) {
	rdb := r.client.Redis()
	names := r.registry.Names()
	for _, b := range r.registry.Broken() {
		names = append(names, b.Site)
	}
	for _, set := range []string{store.HealthSitesKey, store.PausedSitesKey} {
		there, err := rdb.SMembers(ctx, set).Result()
		if err != nil {
			return nil, fmt.Errorf("list sites: %w", err)
		}
		names = append(names, there...)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
