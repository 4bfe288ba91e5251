package proxies

import (
	"testing"
	"time"

	"muster/tasks/redistest"
)

func TestLookup(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	pool := NewPool(PoolConfig{Redis: rdb})
	ctx := t.Context()
	if _, err := pool.Add(ctx, Proxy{Protocol: "http", Host: "192.0.2.7", Port: 80, LatencyMS: 100}); err != nil {
		t.Fatal(err)
	}
	const id = "http://192.0.2.7:80"
	if _, err := pool.store.report(ctx, "a.example", 3, []report{{id: id, outcome: Succeeded, begun: time.Now(), latency: time.Second, cooldown: -1}}); err != nil {
		t.Fatal(err)
	}
	if err := pool.Ban(ctx, "b.example", time.Hour, id); err != nil {
		t.Fatal(err)
	}
	if err := pool.Ban(ctx, "c.example", time.Nanosecond, id); err != nil { // it expires immediately
		t.Fatal(err)
	}
	if err := pool.Ban(ctx, "", 0, id); err != nil {
		t.Fatal(err)
	}
	asked := []string{"a.example", "b.example", "c.example"}
	k, found, err := pool.Lookup(ctx, id, asked)
	if err != nil || !found || !k.Banned || !k.BannedUntil.IsZero() || !k.Removed.IsZero() || k.Health.Requests == 0 {
		t.Fatalf("got %+v, %v, %v, want a member with health, banned without end", k.Health, found, err)
	}
	checkSites(t, k.Sites)
	if _, err := pool.Remove(ctx, id); err != nil {
		t.Fatal(err)
	}
	if k, found, err := pool.Lookup(ctx, id, nil); err != nil || !found || k.Removed.IsZero() || k.candidate().Known {
		t.Errorf("removed: got %v, %v, removed at %v, want a time", found, err, k.Removed)
	}
	if _, found, err := pool.Lookup(ctx, "http://192.0.2.8:80", asked); err != nil || found {
		t.Errorf("an unknown one: got %v, %v, want none", found, err)
	}
}

// checkSites checks the data of a site that has used a proxy and of one that bans it.
func checkSites(t *testing.T, got []SiteDetail) {
	t.Helper()
	if len(got) != 2 || got[0].Site != "a.example" || got[0].Health == nil || got[0].Health.Requests != 1 || got[0].Ban != nil ||
		got[1].Site != "b.example" || got[1].Health != nil || got[1].Ban == nil || got[1].Ban.Until.IsZero() {
		t.Errorf("got sites %+v, want a request at a.example and a ban from b.example", got)
	}
}
