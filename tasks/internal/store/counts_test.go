package store

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks/tasktype"
)

func (x indexed) rates(q tasktype.RateFilter) (lines []string) {
	x.t.Helper()
	rates, err := x.s.Counts.Rates(x.t.Context(), q)
	testutil.Ok(x.t, err)
	for _, r := range rates {
		lines = append(lines, fmt.Sprintf("%s %s %q %d %d %d %d %s", r.Time.UTC().Format("02T15:04"), r.Queue, r.Task,
			r.Succeeded, r.Failed, r.Revoked, r.Retried, r.Busy))
	}
	return lines
}

func (x indexed) wantRates(q tasktype.RateFilter, want ...string) {
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
		x.wantRates(tasktype.RateFilter{Until: until, Step: time.Hour}, hour...)
		x.at(0, t0.Add(90*time.Second), "count", "q", "a", "S", 1) // the next hour
		hour = append(hour, `04T11:00 q "a" 1 0 0 0 0s`)
		x.wantRates(tasktype.RateFilter{Until: until, Step: time.Hour}, hour...)
		x.at(1, t0.Add(14*time.Hour), "count", "q", "a", "S", 5_000_000_000) // the next day
		hour = append(hour, `05T00:00 q "a" 5000000000 0 0 0 0s`)
		x.wantRates(tasktype.RateFilter{Until: until, Step: time.Hour}, hour...)

		x.wantRates(tasktype.RateFilter{Until: until},
			`04T10:58 q "a" 7 1 0 0 35ms`, `04T10:58 q|x "a b" 0 0 0 1 0s`, `04T10:59 q "a" 0 0 1 0 0s`,
			`04T11:00 q "a" 1 0 0 0 0s`, `05T00:58 q "a" 5000000000 0 0 0 0s`)
		x.wantRates(tasktype.RateFilter{Until: until, Queue: "q|x"}, `04T10:58 q|x "a b" 0 0 0 1 0s`)
		x.wantRates(tasktype.RateFilter{Until: until, Task: "a b"}, `04T10:58 q|x "a b" 0 0 0 1 0s`)
		x.wantRates(tasktype.RateFilter{Until: until, Task: "b"})
		x.wantRates(tasktype.RateFilter{Since: t0.Add(59 * time.Second), Until: t0.Add(89 * time.Second)}, `04T10:59 q "a" 0 0 1 0 0s`)
		x.wantRates(tasktype.RateFilter{Since: t0.Add(2 * time.Minute), Until: until, Step: time.Hour}, hour[2:]...)
		x.wantRates(tasktype.RateFilter{Until: t0.Add(25 * time.Hour)}, `05T00:58 q "a" 5000000000 0 0 0 0s`)
		x.wantRates(tasktype.RateFilter{Until: t0.Add(31 * 24 * time.Hour), Step: time.Hour})
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
				testutil.Ok(t, rdb.HSet(t.Context(), key, pairs...).Err())
			}
		}
		full(testKeys.minutesKey(0, hour), "58")
		x.at(0, t0, "count", "q", "new", "S", 1, "count", "q", "newer", "S", 2,
			"count", "q", "t0", "S", 1, "count", "q", "(other)", "S", 1) // known names count as before
		if n := rdb.HLen(t.Context(), testKeys.minutesKey(0, hour)).Val(); n != bound+1 {
			t.Errorf("got %d fields of an hour, want %d and one of the others", n, bound)
		}
		x.wantRates(tasktype.RateFilter{Until: t0, Task: "t0"}, `04T10:58 q "t0" 2 0 0 0 0s`)
		x.wantRates(tasktype.RateFilter{Until: t0, Task: "(other)"}, `04T10:58 q "(other)" 4 0 0 0 0s`)

		rdb.Del(t.Context(), testKeys.minutesKey(0, hour), testKeys.hoursKey(0, hour/24))
		full(testKeys.hoursKey(0, hour/24), "9")
		later := t0.Add(time.Hour)
		x.at(0, later, "count", "q", "newer", "S", 2)
		if n := rdb.HLen(t.Context(), testKeys.hoursKey(0, hour/24)).Val(); n != bound+1 {
			t.Errorf("got %d fields of a day, want %d and one of the others", n, bound)
		}
		x.wantRates(tasktype.RateFilter{Until: later, Step: time.Hour, Task: "t0"}, `04T09:00 q "t0" 1 0 0 0 0s`)
		x.wantRates(tasktype.RateFilter{Until: later, Step: time.Hour, Task: "(other)"}, `04T11:00 q "(other)" 2 0 0 0 0s`)
	})
}

// Times are counted by hour, and beyond the limit of tasks the remaining ones are counted together.
func TestTimesAreCountedByHour(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		x := newIndexed(t, rdb, 2)
		x.at(0, t0, "count", "q", "a", "0", 5, "count", "q", "a", "7", 2, "count", "q|x", "a b", "48", 1)
		x.at(1, t0.Add(time.Second), "count", "q", "a", "7", 3)
		x.at(0, t0.Add(2*time.Hour), "count", "q", "a", "1", 1)
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

// FuzzIndex wants a cursor that is let through to be the one that this package writes for its place.
func FuzzIndex(f *testing.F) {
	for _, s := range []string{"1700000000000.abc", "1.~", ".", "-5.x", "+5.x", "9223372036854775808.x", "id 5 6 name with blanks", "id 9223372036854775807 1 n", "id 5 6 a → b\tnightly\tk=v\tbad\t=x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := parsePosition(s); err == nil {
			if again, err := parsePosition(p.String()); err != nil || again != p {
				t.Errorf("%q: decoded %+v, and %+v, %v after encoding again", s, p, again, err)
			}
		}
		if e, ok := parseIndexed(s, tasktype.WorkflowSucceeded, 1); ok && !strings.HasSuffix(s, e.Tasks) && !strings.Contains(s, e.Tasks+"\t") {
			t.Errorf("%q is read as %+v", s, e)
		}
	})
}

func TestHistory(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		s, ctx := New(rdb, DefaultNamespace), t.Context()
		add := func(at time.Time, measure tasktype.Measure, values map[string]int64) {
			t.Helper()
			testutil.Ok(t, s.History.Add(ctx, at, map[tasktype.Measure]map[string]int64{measure: values}))
		}
		expect := func(f tasktype.HistoryFilter, want ...string) {
			t.Helper()
			list, err := s.History.Read(ctx, f)
			testutil.Ok(t, err)
			var got []string
			for _, series := range list {
				line := series.Name
				for _, v := range series.Values {
					line += fmt.Sprintf(" %s=%d", v.Time.UTC().Format("15:04"), v.Value)
				}
				got = append(got, line)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%+v: got %q, want %q", f, got, want)
			}
		}
		at := time.Date(2026, 5, 4, 10, 58, 40, 0, time.UTC)
		add(at, tasktype.PendingTasks, map[string]int64{"mail": 3, "idle": 0})
		add(at.Add(time.Minute), tasktype.PendingTasks, map[string]int64{"mail": 0, "gpu:1": 4})
		add(at.Add(3*time.Minute), tasktype.PendingTasks, map[string]int64{"gpu:1": 7})
		until := at.Add(time.Hour)
		expect(tasktype.HistoryFilter{Measure: tasktype.PendingTasks, Until: until},
			" 10:58=3 10:59=4 11:01=7", "gpu:1 10:58=0 10:59=4 11:01=7", "mail 10:58=3 10:59=0 11:01=0")
		expect(tasktype.HistoryFilter{Measure: tasktype.PendingTasks, Names: []string{"mail", "none"}, Since: at.Add(time.Minute), Until: at.Add(2 * time.Minute)}, "mail 10:59=0", "none 10:59=0")
		expect(tasktype.HistoryFilter{Measure: tasktype.ActiveTasks, Until: until})
		expect(tasktype.HistoryFilter{Measure: tasktype.PendingTasks, Until: at.Add(3 * time.Hour)})

		for _, want := range []bool{true, false} {
			if got, err := s.History.Claim(ctx, "w", at); err != nil || got != want {
				t.Errorf("claim of a minute: got %t, %v, want %t", got, err, want)
			}
		}
		if ttl := rdb.TTL(ctx, testKeys.historyKey(tasktype.PendingTasks, at.Unix()/3600)).Val(); ttl < 2*time.Hour || ttl > 4*time.Hour {
			t.Errorf("got a series that expires after %s, want 3 h", ttl)
		}
	})
}

func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	s := New(redistest.Server(t).Client(), DefaultNamespace)
	at := time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)
	values := map[string]int64{}
	for i := range 2 * mostSeries {
		values[fmt.Sprint(i)] = int64(1 + i)
	}
	testutil.Ok(t, s.History.Add(t.Context(), at, map[tasktype.Measure]map[string]int64{tasktype.PendingTasks: values}))
	list, err := s.History.Read(t.Context(), tasktype.HistoryFilter{Measure: tasktype.PendingTasks, Until: at.Add(time.Hour)})
	if err != nil || len(list) != mostSeries+1 {
		t.Fatalf("got %d series, %v, want %d and the sum", len(list), err, mostSeries)
	}
	if len(list[0].Values) != 1 || list[0].Values[0].Value != mostSeries*(2*mostSeries+1) {
		t.Errorf("got the sums %+v, want all values in them", list[0].Values)
	}
	if !slices.ContainsFunc(list, func(s tasktype.Series) bool { return s.Name == "599" }) || slices.ContainsFunc(list, func(s tasktype.Series) bool { return s.Name == "0" }) {
		t.Error("want the series with the highest values")
	}
}

const testKeys = Keys(DefaultNamespace)

// Servers with equal ranges of slots have equally many shards.
func TestShardsAreSpreadOverServers(t *testing.T) {
	t.Parallel()
	rdb := redistest.Cluster(t)
	for _, servers := range []int{2, 3, 4, 6} {
		counts := make([]int, servers)
		for shard := range clusterShards {
			slot, err := rdb.ClusterKeySlot(t.Context(), testKeys.Prefix(shard)).Result()
			testutil.Ok(t, err)
			counts[int(slot)*servers/16384]++
		}
		for i, n := range counts {
			if n != clusterShards/servers {
				t.Errorf("server %d of %d has %d of %d shards", i+1, servers, n, clusterShards)
			}
		}
	}
}

func TestConstantsOfScripts(t *testing.T) {
	files, err := sources.ReadDir("lua")
	testutil.Ok(t, err)
	var all strings.Builder
	for _, f := range files {
		all.WriteString(source(strings.TrimSuffix(f.Name(), ".lua")))
	}
	for name := range constants {
		if !regexp.MustCompile(`\b` + name + `\b`).MatchString(all.String()) {
			t.Errorf("no script uses the constant %s", name)
		}
	}

	const script = "put(id, FAILED) string.find('^[{WAITING}]|', {SPANS, 'FAILED', OTHER})"
	if got, want := WithConstants(script), "put(id, 'F') string.find('^[DTLHGQ]|', {'d', 'FAILED', OTHER})"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
