package proxies

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/proxies/probe"
)

// A ban applies to its site until it expires, in all processes, regardless of checks.
func TestBanAppliesToSiteUntilItExpires(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		mine, theirs := newPool(t, rdb, nil), newPool(t, rdb, nil)
		mustPublish(t, mine, result(1, nil), result(2, nil))
		one, two := proxyOf(result(1, nil)).ID, proxyOf(result(2, nil)).ID
		ban := func(site string, d time.Duration, ids ...string) {
			t.Helper()
			testutil.Ok(t, mine.Ban(t.Context(), site, d, ids...))
		}
		gets := func(site string, want ...string) {
			t.Helper()
			mustPublish(t, mine, result(1, nil), result(2, nil)) // a check does not end a ban
			got := map[string]bool{}
			for range 40 {
				lease, err := theirs.Pick(t.Context(), PickOptions{Site: site})
				if err != nil {
					break
				}
				got[lease.Proxy.ID] = true
				lease.Release()
			}
			if len(got) != len(want) {
				t.Errorf("%q gets %v, want %v", site, got, want)
			}
			for _, id := range want {
				if !got[id] {
					t.Errorf("%q got no lease on %s", site, id)
				}
			}
		}
		ban("shop", 0, one)
		gets("shop", two)
		gets("news", one, two)
		ban("", time.Hour, two)
		gets("shop")
		gets("news", one)
		if usable, err := theirs.Usable(t.Context()); err != nil || usable != 1 {
			t.Errorf("%d usable, %v", usable, err)
		}
		if _, err := theirs.Pick(t.Context(), PickOptions{Site: "shop"}); !errors.Is(err, ErrNoProxy) {
			t.Errorf("got %v, want ErrNoProxy", err)
		}
		if list, err := theirs.List(t.Context(), Everything); err != nil || len(list) != 2 || !list[0].Banned && !list[1].Banned {
			t.Errorf("got %+v %v, want two members, one of them banned", list, err)
		}
		if n, err := mine.Unban(t.Context(), "shop", one, two); n != 1 || err != nil {
			t.Errorf("%d bans removed, %v", n, err)
		}
		gets("shop", one)

		// An expired ban is deleted.
		ban("", time.Nanosecond, two)
		gets("shop", one, two)
		if bans, err := mine.store.bans(t.Context()); err != nil || len(bans) != 0 {
			t.Errorf("got %v %v, want no bans", bans, err)
		}
		if n, _ := rdb.HLen(t.Context(), bansKey("{muster:proxies}")).Result(); n != 0 {
			t.Errorf("%d bans remain", n)
		}
	})
}

func TestFind(t *testing.T) {
	t.Parallel()
	pool := newPool(t, redistest.New(t), nil)
	mustPublish(t, pool, result(1, nil), result(2, func(r *probe.Result) { r.Protocol = "socks5"; r.Candidate.Host = "gate.example.org" }))
	for name, want := range map[string]int{
		"8.8.8.8:1": 1, "8.8.8.8": 1, "http://u:***@8.8.8.8:1": 1, "HTTP://8.8.8.8:1/": 1, "socks5://8.8.8.8:1": 0, "8.8.8.8:2": 0, "http://other@8.8.8.8:1": 0,
		"Gate.Example.org": 1, "socks5://u@gate.example.org:2": 1, "": 0, "8.8.8": 0, proxyOf(result(1, nil)).ID: 1,
	} {
		if found, err := pool.Find(t.Context(), name); err != nil || len(found) != want {
			t.Errorf("%q: got %v %v, want %d", name, found, err, want)
		}
	}
}

// A member is found by its listed string, whatever characters its user name contains, and only that member.
func TestFindAsListed(t *testing.T) {
	t.Parallel()
	pool := newPool(t, redistest.New(t), nil)
	for port, user := range []string{"", "u", "Us:er+x", "A b", "gate-country=bg@x"} {
		mustPublish(t, pool, result(uint16(port/2+1), func(r *probe.Result) { r.Candidate.Username = user }))
	}
	mustPublish(t, pool, result(1, func(r *probe.Result) { r.Candidate.Username, r.Candidate.Password = "", "" }))
	members, err := pool.List(t.Context(), Everything)
	if err != nil || len(members) != 5 {
		t.Fatalf("got %v %v, want five members", members, err)
	}
	for _, m := range members {
		for _, name := range []string{m.String(), m.ID, " " + m.String() + "/ "} {
			if found, err := pool.Find(t.Context(), name); err != nil || len(found) != 1 || found[0].ID != m.ID {
				t.Errorf("%q: got %v %v, want %s alone", name, found, err, m.ID)
			}
		}
		if found, err := pool.Find(t.Context(), m.URL().String()); err != nil || len(found) == 0 {
			t.Errorf("%s by its URL with the password: got %v %v, want it", m, found, err)
		}
	}
}

// A list for a site has its bans, its health and the score of a pick for the site.
func TestListAt(t *testing.T) {
	t.Parallel()
	pool := newPool(t, redistest.New(t), nil)
	mustPublish(t, pool, result(1, nil), result(2, nil), result(3, nil))
	ids := []string{proxyOf(result(1, nil)).ID, proxyOf(result(2, nil)).ID, proxyOf(result(3, nil)).ID}
	testutil.Ok(t, pool.Ban(t.Context(), "shop", time.Hour, ids[0]))
	testutil.Ok(t, pool.Ban(t.Context(), "shop", 0, ids[1]))
	testutil.Ok(t, pool.Ban(t.Context(), "", time.Hour, ids[1]))
	for range 6 {
		(&Lease{Proxy: Proxy{ID: ids[2]}, from: pool.leases, site: "shop", begun: time.Now()}).Report(Banned, 0)
	}
	flush(t, pool)
	members, err := pool.ListAt(t.Context(), "shop", Everything)
	if err != nil || len(members) != 3 {
		t.Fatalf("got %v %v, want three members", members, err)
	}
	if left := time.Until(members[0].BannedUntil); !members[0].Banned || left < 59*time.Minute || left > time.Hour {
		t.Errorf("banned for an hour: got %t for %s, want true for an hour", members[0].Banned, left)
	}
	if !members[1].Banned || !members[1].BannedUntil.IsZero() {
		t.Errorf("banned without end: got %t until %s, want true until zero", members[1].Banned, members[1].BannedUntil)
	}
	if h := members[2].SiteHealth; members[2].Banned || h == nil || h.Requests != 6 {
		t.Fatalf("seen by the site: got banned %t and %+v, want six requests", members[2].Banned, h)
	}
	everywhere, err := pool.List(t.Context(), Filter{})
	if err != nil || len(everywhere) != 2 || everywhere[0].Banned || everywhere[0].SiteHealth != nil {
		t.Fatalf("without a site: got %+v %v, want two members without a site", everywhere, err)
	}
	if members[2].Score >= everywhere[1].Score {
		t.Errorf("got score %v at the site that bans it, want less than the overall score %v", members[2].Score, everywhere[1].Score)
	}
	s, err := pool.Stats(t.Context())
	if err != nil || s.SiteBans["shop"] != 2 || s.Banned != 1 {
		t.Errorf("got bans %v and %d from all sites, %v; want two from the shop and one", s.SiteBans, s.Banned, err)
	}
}

func TestStats(t *testing.T) {
	t.Parallel()
	pool := newPool(t, redistest.New(t), nil)
	if s, err := pool.Stats(t.Context()); err != nil || s.Live != 0 || s.Latency.P99 != 0 {
		t.Errorf("an empty pool: got %+v %v, want zeros", s, err)
	}
	mustPublish(t, pool, result(100, nil), result(200, nil), result(300, nil), result(400, func(r *probe.Result) { r.Anonymity = probe.Transparent }), result(500, func(r *probe.Result) { r.Candidate.Country = "BG" }))
	testutil.Ok(t, pool.Ban(t.Context(), "", 0, proxyOf(result(300, nil)).ID))
	testutil.Must(pool.Remove(t.Context(), proxyOf(result(200, nil)).ID))(t)
	pickOne(t, pool, PickOptions{Filter: Filter{Countries: []string{"BG"}}}).Report(Failed, 0)
	flush(t, pool)
	s, err := pool.Stats(t.Context())
	if err != nil || s.Live != 4 || s.Usable != 2 || s.Ready != 1 || s.Cooling != 1 || s.Banned != 1 || s.Anonymity[probe.Transparent] != 1 || s.Countries["BG"] != 1 || s.Protocols["http"] != 4 {
		t.Errorf("got %+v %v", s, err)
	}
	if s.Latency.P50 != 510 || s.Latency.P99 != 510 {
		t.Errorf("got %+v, want 510 ms", s.Latency)
	}
}
