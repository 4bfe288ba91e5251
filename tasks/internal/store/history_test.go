package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/tasks/tasktype"
)

func TestHistory(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		s, ctx := New(rdb, DefaultNamespace), t.Context()
		add := func(at time.Time, measure tasktype.Measure, values map[string]int64) {
			t.Helper()
			if err := s.History.Add(ctx, at, map[tasktype.Measure]map[string]int64{measure: values}); err != nil {
				t.Fatal(err)
			}
		}
		expect := func(f tasktype.HistoryFilter, want ...string) {
			t.Helper()
			list, err := s.History.Read(ctx, f)
			if err != nil {
				t.Fatal(err)
			}
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
		add(at, tasktype.WorkerMemory, map[string]int64{"w": 5 << 20})
		add(at.Add(time.Minute), tasktype.WorkerMemory, map[string]int64{"x": 3<<19 + 1})
		until := at.Add(time.Hour)
		expect(tasktype.HistoryFilter{Measure: tasktype.PendingTasks, Until: until},
			" 10:58=3 10:59=4 11:01=7", "gpu:1 10:58=0 10:59=4 11:01=7", "mail 10:58=3 10:59=0 11:01=0")
		expect(tasktype.HistoryFilter{Measure: tasktype.PendingTasks, Names: []string{"mail", "none"}, Since: at.Add(time.Minute), Until: at.Add(2 * time.Minute)}, "mail 10:59=0", "none 10:59=0")
		expect(tasktype.HistoryFilter{Measure: tasktype.WorkerMemory, Names: []string{"x", "w"}, Until: until}, "w 10:58=5242880", "x 10:59=2097152")
		expect(tasktype.HistoryFilter{Measure: tasktype.ActiveTasks, Until: until})
		expect(tasktype.HistoryFilter{Measure: tasktype.WorkerMemory, Until: at.Add(26 * time.Hour)})

		for _, want := range []bool{true, false} {
			if got, err := s.History.Claim(ctx, "w", at); err != nil || got != want {
				t.Errorf("claim of a minute: got %t, %v, want %t", got, err, want)
			}
		}
		if ttl := rdb.TTL(ctx, testKeys.historyKey(tasktype.WorkerMemory, at.Unix()/3600)).Val(); ttl < 25*time.Hour || ttl > 27*time.Hour {
			t.Errorf("got a series that expires after %s, want 26 h", ttl)
		}
	})
}

func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	s := New(redistest.Server(t).Client(), DefaultNamespace)
	at := time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)
	for minute := range 3 {
		values := map[string]int64{}
		for i := range 200 {
			values[fmt.Sprint(minute, "-", i)] = int64(1 + i)
		}
		if err := s.History.Add(t.Context(), at.Add(time.Duration(minute)*time.Minute), map[tasktype.Measure]map[string]int64{tasktype.PendingTasks: values}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := s.History.Read(t.Context(), tasktype.HistoryFilter{Measure: tasktype.PendingTasks, Until: at.Add(time.Hour)})
	if err != nil || len(list) != mostSeries {
		t.Fatalf("got %d series, %v, want %d", len(list), err, mostSeries)
	}
	if len(list[0].Values) != 3 || list[0].Values[2].Value != 200*201/2 {
		t.Errorf("got the sums %+v, want all values in them", list[0].Values)
	}
	if !slices.ContainsFunc(list, func(s tasktype.Series) bool { return s.Name == "1-199" }) || slices.ContainsFunc(list, func(s tasktype.Series) bool { return s.Name == "1-0" }) {
		t.Error("want the series with the highest values")
	}
}
