package proxies

import (
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/proxies/proxytest"
)

// The cooldown at a site doubles with each consecutive ban, by status or by page. A successful page resets it.
func TestCooldownDoublesWithBans(t *testing.T) {
	t.Parallel()
	b := newBench(t, hello, nil)
	id := b.add(t, proxytest.Options{Kind: proxytest.Elite})[0]
	report := func(outcomes ...Outcome) Health {
		t.Helper()
		begun := time.Now()
		for _, o := range outcomes {
			testutil.Ok(t, b.pool.leases.write(t.Context(), "shop", []report{{id: id, outcome: o, begun: begun, cooldown: -1}}))
		}
		done := time.Now().UnixMilli()
		testutil.Eventually(t, "the next millisecond", func() bool { return time.Now().UnixMilli() > done })
		_, there, _ := b.health(t, id, "shop")
		return there
	}
	for i, step := range []struct {
		outcomes []Outcome
		fails    float64
	}{
		{[]Outcome{Succeeded}, 0},
		{[]Outcome{Succeeded, bannedLate}, 1},
		{[]Outcome{Banned}, 2},
		{[]Outcome{Succeeded, bannedLate}, 3},
		{[]Outcome{Succeeded, bannedLate}, 4},
		{[]Outcome{Succeeded}, 0},
		{[]Outcome{Succeeded}, 0},
		{[]Outcome{Succeeded, bannedLate}, 1},
		{[]Outcome{Banned}, 2},
		{[]Outcome{Succeeded, bannedLate, bannedLate}, 3}, // reported twice for one request
	} {
		h := report(step.outcomes...)
		if h.Fails != step.fails {
			t.Errorf("step %d: got %v consecutive bans, want %v", i, h.Fails, step.fails)
		}
		if most := 30 * time.Second << int(h.Fails); h.Fails > 0 && time.Until(h.Until) > most {
			t.Errorf("step %d: got a cooldown of %s, want at most %s", i, time.Until(h.Until), most)
		}
	}
}

// The response to a request that was in flight when the proxy was banned does not end the cooldown.
func TestLateResponseDoesNotEndCooldown(t *testing.T) {
	t.Parallel()
	for _, refused := range [][]Outcome{{Banned}, {Succeeded, bannedLate}, {Paused}} {
		b := newBench(t, hello, nil)
		id := b.add(t, proxytest.Options{Kind: proxytest.Elite})[0]
		begun := time.Now().Add(-time.Second)
		rest := time.Duration(-1)
		if refused[0] == Paused {
			rest = time.Hour
		}
		for _, o := range append(refused, Succeeded) {
			testutil.Ok(t, b.pool.leases.write(t.Context(), "shop", []report{{id: id, outcome: o, begun: begun, cooldown: rest}}))
		}
		all, there, _ := b.health(t, id, "shop")
		if there.Fails != 1 && rest < 0 || rest > 0 && time.Until(there.Until) < rest/2 {
			t.Errorf("%v: the cooldown has ended: %+v", refused, there)
		}
		if all.Fails != 0 {
			t.Errorf("got %+v elsewhere", all)
		}
	}
}
