package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/tasktype"
)

const (
	historyKept = 2 * time.Hour
	mostSeries  = 300 // maximum number of series per measure and hour
)

// Claim reports whether no other worker has claimed the minute of a time. The first one stores its values.
func (s History) Claim(ctx context.Context, worker string, at time.Time) (bool, error) {
	first, err := s.rdb.SetNX(ctx, s.historyMinuteKey(at.Unix()/60), worker, 2*time.Minute).Result()
	if err != nil {
		return false, fmt.Errorf("claim minute: %w", err)
	}
	return first, nil
}

// Add stores the values of a minute, and their sum as the series "". If there are too many series, it adds no new ones,
// those with the lowest values first. Zeros are stored in the sum only.
func (s History) Add(ctx context.Context, at time.Time, all map[tasktype.Measure]map[string]int64) error {
	reads, writes := s.rdb.Pipeline(), s.rdb.Pipeline()
	type read struct {
		names []string
		size  *redis.IntCmd
		old   *redis.SliceCmd
	}
	old := map[tasktype.Measure]read{}
	for measure, values := range all {
		var sum int64
		for _, v := range values {
			sum += v
		}
		values[""] = sum
		names := slices.SortedFunc(maps.Keys(values), func(a, b string) int { return cmp.Or(cmp.Compare(values[b], values[a]), cmp.Compare(a, b)) })
		key := s.historyKey(measure, at.Unix()/3600)
		old[measure] = read{names, reads.HLen(ctx, key), reads.HMGet(ctx, key, names...)}
	}
	if _, err := reads.Exec(ctx); err != nil {
		return fmt.Errorf("read history: %w", err)
	}
	for measure, r := range old {
		size := int(r.size.Val())
		var fields []any
		for i, name := range r.names {
			value, known := all[measure][name], r.old.Val()[i] != nil
			if name != "" && (value == 0 || !known && size >= mostSeries) {
				continue
			}
			if !known {
				size++
			}
			fields = append(fields, name, text(r.old.Val()[i])+strconv.Itoa(at.Minute())+":"+strconv.FormatInt(value, 10)+" ")
		}
		key := s.historyKey(measure, at.Unix()/3600)
		writes.HSet(ctx, key, fields...)
		writes.Expire(ctx, key, historyKept+time.Hour)
	}
	if _, err := writes.Exec(ctx); err != nil {
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
	first, last := f.Since.Unix()/3600, f.Until.Unix()/3600
	var some []*redis.SliceCmd
	var every []*redis.MapStringStringCmd
	fields := append([]string{""}, f.Names...)
	for hour := first; hour <= last; hour++ {
		if key := s.historyKey(f.Measure, hour); f.Names == nil {
			every = append(every, pipe.HGetAll(ctx, key))
		} else {
			some = append(some, pipe.HMGet(ctx, key, fields...))
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	series := map[string]map[int64]int64{} // by name and unix minute
	for i := range last - first + 1 {
		hour := map[string]string{}
		if f.Names == nil {
			hour = every[i].Val()
		} else {
			for k, value := range some[i].Val() {
				hour[fields[k]] = text(value)
			}
		}
		for name, values := range hour {
			if series[name] == nil {
				series[name] = map[int64]int64{}
			}
			addSamples(series[name], (first+i)*60, values)
		}
	}
	minutes := slices.Sorted(maps.Keys(series[""]))
	var out []tasktype.Series
	for _, name := range slices.Sorted(maps.Keys(series)) {
		if f.Names != nil && !slices.Contains(f.Names, name) {
			continue
		}
		s := tasktype.Series{Name: name}
		for _, minute := range minutes {
			at := time.Unix(minute*60, 0)
			if !at.Before(f.Since.Truncate(time.Minute)) && !at.After(f.Until) {
				s.Values = append(s.Values, tasktype.Sample{Time: at, Value: series[name][minute]})
			}
		}
		if len(s.Values) > 0 {
			out = append(out, s)
		}
	}
	return out, nil
}

// addSamples adds the values of an hour, by unix minute.
func addSamples(to map[int64]int64, start int64, values string) {
	for _, one := range strings.Fields(values) {
		minute, value, _ := strings.Cut(one, ":")
		m, err := strconv.ParseInt(minute, 10, 64)
		v, err2 := strconv.ParseInt(value, 10, 64)
		if err == nil && err2 == nil {
			to[start+m] = v
		}
	}
}
