package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/jobs/pipeline"
	"muster/tasks/workqueue"
)

// atOnce bounds how many jobs one call reads at the same time.
const atOnce = 8

// MaxOffset bounds the jobs that a list skips.
const MaxOffset = 10_000

// listChunk bounds how many records are read in one round trip.
const listChunk = 200

// List returns a page of the jobs that a filter selects, the newest first. Its errors are a *FieldError or of Redis.
func (s *Service) List(ctx context.Context, f Filter) (Page, error) {
	if err := f.check(); err != nil {
		return Page{}, err
	}
	page := Page{Jobs: []Job{}, Total: -1}
	chosen, err := s.choose(ctx, f, &page)
	if err != nil {
		return Page{}, err
	}
	records, err := s.records(ctx, chosen)
	if err != nil {
		return Page{}, err
	}
	for _, r := range records {
		if !f.selects(r) { // it has changed meanwhile
			clear(r)
		}
	}
	if page.Jobs, err = s.briefs(ctx, chosen, records); err != nil || f.NoUsage {
		return page, err
	}
	all := make([]*Job, len(page.Jobs))
	for i := range page.Jobs {
		all[i] = &page.Jobs[i]
	}
	return page, s.usage(ctx, all)
}

// choose returns the IDs of the jobs of a page, and sets its total and cursor.
func (s *Service) choose(ctx context.Context, f Filter, page *Page) (chosen []string, err error) {
	indexes, exact := f.indexes()
	limit, skip, from, last := cmp.Or(f.Limit, 50), f.Offset, f.Cursor, ""
	chunk, all := listChunk, exact && skip == 0 // all: of the indexes are chosen
	if all {
		chunk = limit + 1 // one more, to know whether a page follows
	}
	for more := true; more && page.Next == ""; {
		found, total, err := s.below(ctx, indexes, from, chunk)
		if err != nil {
			return nil, err
		}
		if exact {
			page.Total = total
		}
		more = len(found) == chunk
		selected, err := s.selected(ctx, f, found, all)
		if err != nil {
			return nil, err
		}
		for i, e := range found {
			from = e.seq
			switch {
			case !selected[i]:
			case skip > 0:
				skip--
			case len(chosen) == limit:
				page.Next = last
			default:
				chosen, last = append(chosen, e.id), e.seq
			}
		}
	}
	return chosen, nil
}

// selected reports which jobs a filter selects. It reads nothing if that is all.
func (s *Service) selected(ctx context.Context, f Filter, found []entry, all bool) ([]bool, error) {
	selected := make([]bool, len(found))
	if all || len(found) == 0 {
		for i := range selected {
			selected[i] = true
		}
		return selected, nil
	}
	ids := idsOf(found)
	records, err := s.fields(ctx, ids, "seq", "name", "status", "labels")
	if err != nil {
		return nil, err
	}
	inContext, err := s.withContext(ctx, ids, f.Context)
	if err != nil {
		return nil, err
	}
	for i, r := range records {
		selected[i] = r["seq"] != "" && f.selects(r) && inContext[i]
	}
	return selected, nil
}

// briefs returns jobs without their usage, and omits jobs that were deleted meanwhile. See whole for what else is missing.
func (s *Service) briefs(ctx context.Context, ids []string, records []record) ([]Job, error) {
	glances, err := s.glances(ctx, ids, records)
	if err != nil {
		return nil, err
	}
	jobs := make([]Job, 0, len(ids))
	for i, id := range ids {
		if records[i]["status"] == "" {
			continue
		}
		j, err := s.whole(ctx, id, records[i], true, glances[id])
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// glances reads the counts and the stages that take the job of jobs without stored final counts, in one round trip.
func (s *Service) glances(ctx context.Context, ids []string, records []record) (map[string]*workqueue.Glance, error) {
	var open []string
	var wanted []workqueue.Wanted
	for i, r := range records {
		if r["status"] == "" || r["final"] != "" {
			continue
		}
		stages, err := s.stageIDs(ctx, r, true)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("job %s: %w", ids[i], err)
		}
		open, wanted = append(open, ids[i]), append(wanted, workqueue.Wanted{Queue: s.queue(ids[i]), IDs: stages})
	}
	all, err := workqueue.Glances(ctx, wanted...)
	if err != nil {
		return nil, err
	}
	out := map[string]*workqueue.Glance{}
	for i, id := range open {
		out[id] = &all[i]
	}
	return out, nil
}

func (f Filter) check() error {
	for _, st := range f.Statuses {
		if !slices.Contains(Statuses, st) {
			return bad("status", "%.20q is not a state; there are created, processing, completed, failed, cancelled", string(st))
		}
	}
	if f.Limit < 0 || f.Limit > 1000 {
		return bad("limit", "%d is not within 1 and 1000", f.Limit)
	}
	if f.Offset < 0 || f.Offset > MaxOffset {
		return bad("offset", "%d is not within 0 and %d; use the cursor of the page before", f.Offset, MaxOffset)
	}
	if _, err := strconv.ParseInt(f.Cursor, 10, 64); err != nil && f.Cursor != "" {
		return bad("cursor", "%.40q is not a cursor of this list", f.Cursor)
	}
	return nil
}

// CheckContext returns a *FieldError for a key of the context that none of the pipelines that the filter can select
// declares: no job is found by it.
func (f Filter) CheckContext(pipelines []*pipeline.Pipeline) error {
	var declared []string
	for _, p := range pipelines {
		if f.Name == "" || f.Name == p.Name {
			declared = append(declared, p.Context...)
		}
	}
	slices.Sort(declared)
	declared = slices.Compact(declared)
	if slices.Contains(declared, pipeline.AnyContext) {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(f.Context)) {
		if slices.Contains(declared, key) {
			continue
		}
		if len(declared) == 0 {
			return bad("context", "no pipeline declares keys of the context; list them in its file, as in context: [%s]", key)
		}
		return bad("context", "no pipeline declares %s; declared are %s", key, strings.Join(declared, ", "))
	}
	return nil
}

// indexes returns the indexes to read, whose jobs together are all that the filter can select, and whether they hold no
// others.
func (f Filter) indexes() (keys []string, exact bool) {
	one := len(f.Context)
	for _, on := range []bool{f.Name != "", f.Label != "", len(f.Statuses) > 0} {
		if on {
			one++
		}
	}
	exact = one <= 1
	switch {
	case len(f.Context) > 0:
		for key, value := range f.Context {
			return []string{contextKey(key, value)}, exact
		}
	case f.Label != "":
		return []string{labelKey(f.Label)}, exact
	case f.Name != "":
		return []string{nameKey(f.Name)}, exact
	case len(f.Statuses) > 0:
		for _, st := range Statuses {
			if slices.Contains(f.Statuses, st) {
				keys = append(keys, statusKey(st))
			}
		}
		return keys, exact
	}
	return []string{allKey}, exact
}

// selects reports whether the filter selects a job, apart from its context.
func (f Filter) selects(r record) bool {
	if len(f.Statuses) > 0 && !slices.Contains(f.Statuses, r.status()) {
		return false
	}
	return (f.Name == "" || r["name"] == f.Name) && (f.Label == "" || slices.Contains(r.list("labels"), f.Label))
}

// withContext reports which of some jobs are in the indexes of all these values of the context.
func (s *Service) withContext(ctx context.Context, ids []string, values map[string]string) ([]bool, error) {
	in := make([]bool, len(ids))
	for i := range in {
		in[i] = true
	}
	for key, value := range values {
		numbers, err := s.rdb.ZMScore(ctx, contextKey(key, value), ids...).Result()
		if err != nil {
			return nil, fmt.Errorf("list jobs by their context: %w", err)
		}
		for i, seq := range numbers {
			in[i] = in[i] && seq > 0
		}
	}
	return in, nil
}

// entry is a job in an index, with its number.
type entry struct{ id, seq string }

func idsOf(list []entry) []string {
	ids := make([]string, len(list))
	for i, e := range list {
		ids[i] = e.id
	}
	return ids
}

// below returns up to n jobs of indexes with a number below a cursor, the newest first, and the number of jobs in the indexes.
func (s *Service) below(ctx context.Context, indexes []string, cursor string, n int) (found []entry, total int64, err error) {
	top := "+inf"
	if cursor != "" {
		top = "(" + cursor
	}
	parts, counts := make([]*redis.ZSliceCmd, len(indexes)), make([]*redis.IntCmd, len(indexes))
	_, err = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, key := range indexes {
			parts[i] = p.ZRevRangeByScoreWithScores(ctx, key, &redis.ZRangeBy{Min: "-inf", Max: top, Count: int64(n)})
			counts[i] = p.ZCard(ctx, key)
		}
		return nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("list jobs: %w", err)
	}
	var all []redis.Z
	for i, part := range parts {
		all = append(all, part.Val()...)
		total += counts[i].Val()
	}
	slices.SortFunc(all, func(a, b redis.Z) int { return int(b.Score - a.Score) })
	// A job that changes its state meanwhile can be in two indexes.
	all = slices.CompactFunc(all, func(a, b redis.Z) bool { return a.Score == b.Score })
	for _, z := range all[:min(len(all), n)] {
		id, _ := z.Member.(string)
		found = append(found, entry{id, strconv.FormatFloat(z.Score, 'f', -1, 64)})
	}
	return found, total, nil
}

// records reads records in one round trip. Missing ones are empty.
func (s *Service) records(ctx context.Context, ids []string) ([]record, error) {
	got, err := pipelined(ctx, s, "read jobs", len(ids), func(p redis.Pipeliner, i int) *redis.MapStringStringCmd { return p.HGetAll(ctx, recordKey(ids[i])) })
	if err != nil {
		return nil, err
	}
	out := make([]record, len(ids))
	for i := range got {
		out[i] = got[i].Val()
	}
	return out, nil
}

// fields reads some fields of records in one round trip. Missing records are empty.
func (s *Service) fields(ctx context.Context, ids []string, names ...string) ([]record, error) {
	got, err := pipelined(ctx, s, "read jobs", len(ids), func(p redis.Pipeliner, i int) *redis.SliceCmd { return p.HMGet(ctx, recordKey(ids[i]), names...) })
	if err != nil {
		return nil, err
	}
	out := make([]record, len(ids))
	for i, values := range got {
		out[i] = record{}
		for k, value := range values.Val() {
			if value != nil {
				out[i][names[k]] = toString(value)
			}
		}
	}
	return out, nil
}

// field reads some fields of a record. A missing record is empty.
func (s *Service) field(ctx context.Context, id string, names ...string) (record, error) {
	records, err := s.fields(ctx, []string{id}, names...)
	if err != nil {
		return nil, err
	}
	return records[0], nil
}

// Totals returns how many jobs there are in each state.
func (s *Service) Totals(ctx context.Context) (map[Status]int64, error) {
	counts, err := pipelined(ctx, s, "count jobs", len(Statuses), func(p redis.Pipeliner, i int) *redis.IntCmd { return p.ZCard(ctx, statusKey(Statuses[i])) })
	totals := map[Status]int64{}
	for i, n := range counts {
		totals[Statuses[i]] = n.Val()
	}
	return totals, err
}

// MaxDays is how many days Daily can return.
const MaxDays = 30

// Daily returns the numbers of jobs created and ended on each of the last days, in UTC, today first. It reads counters only.
func (s *Service) Daily(ctx context.Context, days int) ([]Day, error) {
	if days < 1 || days > MaxDays {
		return nil, bad("days", "%d is not within 1 and %d", days, MaxDays)
	}
	today, err := s.now(ctx)
	if err != nil {
		return nil, err
	}
	today = today.UTC()
	got, err := pipelined(ctx, s, "read daily statistics", days, func(p redis.Pipeliner, i int) *redis.MapStringStringCmd {
		return p.HGetAll(ctx, dayKey(today.AddDate(0, 0, -i)))
	})
	list := make([]Day, len(got))
	for i := range list {
		r := record(got[i].Val())
		list[i] = Day{
			Date: today.AddDate(0, 0, -i).Format(time.DateOnly), Created: r.int("created"), Completed: r.int(string(Completed)),
			Failed: r.int(string(Failed)), Cancelled: r.int(string(Cancelled)),
		}
	}
	return list, err
}
