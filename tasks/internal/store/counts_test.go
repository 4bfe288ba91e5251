package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
)

func (x indexed) rates(q RateQuery) (lines []string) {
	x.t.Helper()
	rates, err := x.s.Counts.Rates(x.t.Context(), q)
	if err != nil {
		x.t.Fatal(err)
	}
	for _, r := range rates {
		lines = append(lines, fmt.Sprintf("%s %s %q %d %d %d %d %s", r.Time.UTC().Format("02T15:04"), r.Queue, r.Task,
			r.Succeeded, r.Failed, r.Revoked, r.Retried, r.Busy))
	}
	return lines
}

func (x indexed) wantRates(q RateQuery, want ...string) {
	x.t.Helper()
	if got := x.rates(q); !slices.Equal(got, want) {
		x.t.Errorf("%+v: got\n%s\nwant\n%s", q, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestNodesAreCountedByMinuteAndHour(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		x := newIndexed(t, rdb, 2)
		until := t0.Add(20 * time.Hour)
		x.at(0, t0, "count", "q", "a", "S", 2, "count", "q", "a", "ms", 30.4, "count", "q", "a", "S", 1,
			"count", "q|x", "a b", "again", 1, "count", "q", "a", "F", 0)
		x.at(1, t0.Add(29*time.Second), "count", "q", "a", "S", 4, "count", "q", "a", "ms", 5, "count", "q", "a", "F", 1)
		x.at(0, t0.Add(30*time.Second), "count", "q", "a", "X", 1) // the next minute
		hour := []string{`04T10:00 q "a" 7 1 1 0 35ms`, `04T10:00 q|x "a b" 0 0 0 1 0s`}
		x.wantRates(RateQuery{Until: until, Hourly: true}, hour...)
		x.at(0, t0.Add(90*time.Second), "count", "q", "a", "S", 1) // the next hour
		hour = append(hour, `04T11:00 q "a" 1 0 0 0 0s`)
		x.wantRates(RateQuery{Until: until, Hourly: true}, hour...)
		x.at(1, t0.Add(14*time.Hour), "count", "q", "a", "S", 5_000_000_000) // the next day
		hour = append(hour, `05T00:00 q "a" 5000000000 0 0 0 0s`)
		x.wantRates(RateQuery{Until: until, Hourly: true}, hour...)

		x.wantRates(RateQuery{Until: until},
			`04T10:58 q "a" 7 1 0 0 35ms`, `04T10:58 q|x "a b" 0 0 0 1 0s`, `04T10:59 q "a" 0 0 1 0 0s`,
			`04T11:00 q "a" 1 0 0 0 0s`, `05T00:58 q "a" 5000000000 0 0 0 0s`)
		x.wantRates(RateQuery{Until: until, Queue: "q|x"}, `04T10:58 q|x "a b" 0 0 0 1 0s`)
		x.wantRates(RateQuery{Until: until, Task: "a b"}, `04T10:58 q|x "a b" 0 0 0 1 0s`)
		x.wantRates(RateQuery{Until: until, Task: "b"})
		x.wantRates(RateQuery{Since: t0.Add(59 * time.Second), Until: t0.Add(89 * time.Second)}, `04T10:59 q "a" 0 0 1 0 0s`)
		x.wantRates(RateQuery{Since: t0.Add(2 * time.Minute), Until: until, Hourly: true}, hour[2:]...)
		x.wantRates(RateQuery{Until: t0.Add(25 * time.Hour)}, `05T00:58 q "a" 5000000000 0 0 0 0s`)
		x.wantRates(RateQuery{Until: t0.Add(31 * 24 * time.Hour), Hourly: true})
	})
}

func TestCountsExpireWhenTheirRingHasTurned(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		x := newIndexed(t, rdb, 1)
		hour := t0.Unix() / 3600
		check := func(key string, most time.Duration) {
			t.Helper()
			if got := rdb.TTL(t.Context(), key).Val(); got > most || got < most-time.Minute {
				t.Errorf("%s: expires after %s, want %s", key, got, most)
			}
		}
		x.at(0, t0)
		if n := rdb.DBSize(t.Context()).Val(); n != 1 {
			t.Errorf("nothing counted: got %d keys, want the number of shards", n)
		}
		x.at(0, t0, "count", "q", "a", "S", 1, "count", "q", "a", "ms", 1)
		check(testKeys.minutesKey(0, hour), 26*time.Hour)
		check(testKeys.hoursKey(0, hour/24), 31*24*time.Hour)
	})
}

func TestCountsAreBounded(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		x := newIndexed(t, rdb, 1)
		const bound = 20_000
		hour := t0.Unix() / 3600
		full := func(key, slot string) {
			fields := make([]any, bound)
			for i := range fields {
				fields[i] = fmt.Sprint(slot, " S q t", i)
			}
			for part := range slices.Chunk(fields, 1000) {
				var pairs []any
				for _, f := range part {
					pairs = append(pairs, f, 1)
				}
				if err := rdb.HSet(t.Context(), key, pairs...).Err(); err != nil {
					t.Fatal(err)
				}
			}
		}
		full(testKeys.minutesKey(0, hour), "58")
		x.at(0, t0, "count", "q", "new", "S", 1, "count", "q", "newer", "S", 2,
			"count", "q", "t0", "S", 1, "count", "q", "(other)", "S", 1) // known names count as before
		if n := rdb.HLen(t.Context(), testKeys.minutesKey(0, hour)).Val(); n != bound+1 {
			t.Errorf("got %d fields of an hour, want %d and one of the others", n, bound)
		}
		x.wantRates(RateQuery{Until: t0, Task: "t0"}, `04T10:58 q "t0" 2 0 0 0 0s`)
		x.wantRates(RateQuery{Until: t0, Task: "(other)"}, `04T10:58 q "(other)" 4 0 0 0 0s`)

		rdb.Del(t.Context(), testKeys.minutesKey(0, hour), testKeys.hoursKey(0, hour/24))
		full(testKeys.hoursKey(0, hour/24), "9")
		later := t0.Add(time.Hour)
		x.at(0, later, "count", "q", "newer", "S", 2)
		if n := rdb.HLen(t.Context(), testKeys.hoursKey(0, hour/24)).Val(); n != bound+1 {
			t.Errorf("got %d fields of a day, want %d and one of the others", n, bound)
		}
		x.wantRates(RateQuery{Until: later, Hourly: true, Task: "t0"}, `04T09:00 q "t0" 1 0 0 0 0s`)
		x.wantRates(RateQuery{Until: later, Hourly: true, Task: "(other)"}, `04T11:00 q "(other)" 2 0 0 0 0s`)
	})
}

// Times are counted by hour, and beyond the limit of tasks the remaining ones are counted together.
func TestTimesAreCountedByHour(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		x := newIndexed(t, rdb, 2)
		x.at(0, t0, "lasted", "q", "a", "0", 5, "lasted", "q", "a", "7", 2, "lasted", "q|x", "a b", "48", 1)
		x.at(1, t0.Add(time.Second), "lasted", "q", "a", "7", 3)
		x.at(0, t0.Add(2*time.Hour), "lasted", "q", "a", "1", 1)
		want := func(queue, task string, since, until time.Time, want ...string) {
			t.Helper()
			points, err := x.s.Counts.Durations(t.Context(), queue, task, since, until)
			var got []string
			for _, p := range points {
				line := fmt.Sprintf("%s %s %q", p.Time.UTC().Format("02T15"), p.Queue, p.Task)
				for bucket, n := range p.Durations {
					if n > 0 {
						line += fmt.Sprintf(" %d:%d", bucket, n)
					}
				}
				got = append(got, line)
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		}
		first, other, last := `04T10 q "a" 0:5 7:5`, `04T10 q|x "a b" 48:1`, `04T12 q "a" 1:1`
		until := t0.Add(3 * time.Hour)
		want("", "", time.Time{}, until, first, other, last)
		want("q", "", time.Time{}, until, first, last)
		want("", "a b", time.Time{}, until, other)
		want("", "", t0.Add(time.Hour), until, last)
		want("", "", time.Time{}, t0.Add(25*time.Hour), last)
	})
}
