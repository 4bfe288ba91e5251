package polite

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/limit"
	"muster/tasks/redistest"
)

// useSite uses each key of a site, and returns the errors.
func useSite(ctx context.Context, rdb redis.UniversalClient, site string) error {
	throttle := NewThrottle(rdb, site, true)
	err := throttle.Observe(ctx, time.Second, true)
	b := NewSiteBreaker(rdb, site, time.Hour, time.Now(), limit.BreakerConfig{})
	_, failed := b.Report(ctx, limit.Permit{}, "page", true, Outcome{OfSite: true, Class: "timeout", Via: "proxy"})
	return errors.Join(err, failed)
}

// Whatever key of a site is damaged: values are passed over, and of a key of another type the error says that it must be
// deleted. Other sites are not concerned.
func TestSitesSurviveDamagedKeys(t *testing.T) {
	t.Parallel()
	redistest.EachDamage(t, "keys.go", map[string]string{
		"throttleKey": throttleKey("shop"), "failuresKey": failuresKey("shop"),
	}, nil, func(t *testing.T, key string, d redistest.Damage) {
		rdb, ctx := redistest.New(t), t.Context()
		if err := useSite(ctx, rdb, "shop"); err != nil {
			t.Fatal(err)
		}
		d.Do(t, rdb, key)
		err := useSite(ctx, rdb, "shop")
		if d.Name == "of another type" {
			if err == nil || !strings.Contains(err.Error(), "delete the key "+key) {
				t.Errorf("got %v, want an error that says to delete %s", err, key)
			}
		} else if err != nil {
			t.Errorf("got %v, want damaged values to be passed over", err)
		}
		if err := useSite(ctx, rdb, "news"); err != nil {
			t.Errorf("another site: %v", err)
		}
		if err := rdb.Del(ctx, key).Err(); err != nil {
			t.Fatal(err)
		}
		if err := useSite(ctx, rdb, "shop"); err != nil {
			t.Errorf("once it was deleted: %v", err)
		}
	})
}
