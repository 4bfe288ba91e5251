package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/tasktype"
)

const (
	historyKept = 2 * time.Hour
	mostSeries  = 300 // maximum number of values per measure and minute
)

// Claim reports whether no other worker has claimed the minute of a time. The first one stores its values.
func (s History) Claim(ctx context.Context, worker string, at time.Time) (bool, error) {
	first, err := s.rdb.SetNX(ctx, s.historyMinuteKey(at.Unix()/60), worker, 2*time.Minute).Result()
	if err != nil {
		return false, fmt.Errorf("claim minute: %w", err)
	}
	return first, nil
}

// Add stores the values of a minute, and their sum as the series "". Of very many values only the highest are stored. Zeros are stored in the
// sum only.
func (s History) Add(ctx context.Context, at time.Time, all map[tasktype.Measure]map[string]int64) error {
	pipe := s.rdb.Pipeline()
	for measure, values := range all {
		var sum int64
		names := slices.SortedFunc(maps.Keys(values), func(a, b string) int { return cmp.Or(cmp.Compare(values[b], values[a]), cmp.Compare(a, b)) })
		for i, name := range names {
			sum += values[name]
			if i >= mostSeries || values[name] == 0 {
				delete(values, name)
			}
		}
		values[""] = sum
		raw, err := json.Marshal(values)
		if err != nil {
			return fmt.Errorf("encode history: %w", err)
		}
		key := s.historyKey(measure, at.Unix()/3600)
		pipe.HSet(ctx, key, at.Minute(), raw)
		pipe.Expire(ctx, key, historyKept+time.Hour)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("store history: %w", err)
	}
	return nil
}

// Read returns series in the order of their names, with a value for each minute that was stored.
func (s History) Read(ctx context.Context, f tasktype.HistoryFilter) ([]tasktype.Series, error) {
	if oldest := f.Until.Add(-historyKept); f.Since.Before(oldest) {
		f.Since = oldest
	}
	pipe := s.rdb.Pipeline()
	var hours []*redis.MapStringStringCmd
	first := f.Since.Unix() / 3600
	for hour := first; hour <= f.Until.Unix()/3600; hour++ {
		hours = append(hours, pipe.HGetAll(ctx, s.historyKey(f.Measure, hour)))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	minutes, names := map[int64]map[string]int64{}, map[string]bool{} // the values of unix minutes
	for i, hour := range hours {
		for minute, raw := range hour.Val() {
			at := (first+int64(i))*60 + toInt(minute)
			var values map[string]int64
			if at < f.Since.Unix()/60 || at > f.Until.Unix()/60 || json.Unmarshal([]byte(raw), &values) != nil {
				continue
			}
			minutes[at] = values
			for name := range values {
				names[name] = true
			}
		}
	}
	if f.Names == nil {
		f.Names = slices.Collect(maps.Keys(names))
	}
	var out []tasktype.Series
	for _, name := range slices.Compact(slices.Sorted(slices.Values(f.Names))) {
		s := tasktype.Series{Name: name}
		for _, minute := range slices.Sorted(maps.Keys(minutes)) {
			s.Values = append(s.Values, tasktype.Sample{Time: time.Unix(minute*60, 0), Value: minutes[minute][name]})
		}
		if len(s.Values) > 0 {
			out = append(out, s)
		}
	}
	return out, nil
}
