package tasks_test

import (
	"strings"
	"testing"
	"time"

	"muster/tasks"
)

// FuzzParseURL checks that errors contain no password, and that accepted URLs have addresses.
func FuzzParseURL(f *testing.F) {
	for _, s := range []string{"redis://u:", "redis://:", "redis-cluster://u:", "rediss-sentinel://u:", "unix://u:", "redis://h?password=", "redis-sentinel://h/m?sentinel_password=", "://", "redis://[", "redis://%"} {
		f.Add(s, "@h1:1,h2/3?pool_size=x")
		f.Add(s, "@h/master?db=1")
	}
	f.Add("redis://u:1?", "@h:1/0")
	f.Add("redis-cluster://u:1?", "@h:1")
	f.Fuzz(func(t *testing.T, before, after string) {
		const password = "s3cr3t-w0rd"
		if !strings.HasPrefix(after, "@") && !strings.HasSuffix(before, "password=") {
			return // only a string at the position of a password is one
		}
		text := before + password + after
		o, err := tasks.ParseURL(text)
		if err != nil {
			if strings.Contains(err.Error(), password) {
				t.Errorf("%q: the error is %v", text, err)
			}
			return
		}
		if len(o.Addrs) == 0 || len(o.Addrs) > 100 {
			t.Errorf("%q: got the addresses %q", text, o.Addrs)
		}
	})
}

// FuzzNextTick wants the next tick to be later, and the one after it later still.
func FuzzNextTick(f *testing.F) {
	for _, s := range []string{"* * * * *", "0 6 * * 1", "*/7 1-5 * 2 *", "30 0 0 29 2 *", "@every 90s", "@daily", "CRON_TZ=Europe/Berlin 30 2 * * *", "TZ=UTC @hourly", "0 0 31 2 *", "@every 10ms", "TZ=", "0-99999999999 * * * *"} {
		f.Add(s, int64(1_774_746_000))
	}
	f.Fuzz(func(t *testing.T, spec string, at int64) {
		now := time.Unix(at&0x7fffffff, 0)
		next, err := tasks.NextTick(spec, now)
		if err != nil || next.IsZero() { // a date that is years away
			return
		}
		if !next.After(now) {
			t.Errorf("%q after %s ticks at %s", spec, now, next)
		}
		if then, err := tasks.NextTick(spec, next); err != nil || !then.IsZero() && !then.After(next) {
			t.Errorf("%q after %s ticks at %s, %v", spec, next, then, err)
		}
	})
}
