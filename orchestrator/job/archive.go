package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/orchestrator/event"
	"muster/orchestrator/pipeline"
	"muster/tasks/workqueue"
)

// Archive reads jobs whole, for backups, and restores them. It may be used by many goroutines at once.
type Archive struct {
	*store
	service *Service
}

// NewArchive returns the archive of the jobs of a service.
func NewArchive(s *Service) *Archive { return &Archive{s.store, s} }

// Selection says which jobs Each selects. The zero value selects all.
type Selection struct {
	Kind  string
	Since time.Time // only jobs that have changed since; jobs that have not ended are selected in any case
}

// Each calls yield with the jobs of a selection, and those that open ones of them come after: first the jobs that have
// ended, by when they were created, then the others, each behind those that it comes after. It keeps the ids of jobs
// that have not ended in memory. Jobs that are created meanwhile may be missing.
func (a *Archive) Each(ctx context.Context, sel Selection, yield func(id string) error) error {
	var open []string
	err := a.eachSeq(ctx, func(id string, r record) error {
		switch {
		case sel.Kind != "" && r["kind"] != sel.Kind:
		case !r.status().Terminal():
			open = append(open, id)
		case r.time("updated").Before(sel.Since):
		default:
			return yield(id)
		}
		return nil
	})
	if err != nil {
		return err
	}
	// Ended ones need not come before those that come after them: these keep how they ended.
	done := map[string]bool{}
	for _, id := range open {
		if err := a.behind(ctx, id, done, yield); err != nil {
			return err
		}
	}
	return nil
}

// behind calls yield with the open jobs that a job comes after, and then with the job, unless they are done.
func (a *Archive) behind(ctx context.Context, id string, done map[string]bool, yield func(id string) error) error {
	seen := map[string]bool{} // those of a circle, which no job can be in, are taken once
	for stack := []string{id}; len(stack) > 0; {
		at := stack[len(stack)-1]
		if done[at] {
			stack = stack[:len(stack)-1]
			continue
		}
		seen[at] = true
		before, err := a.openBefore(ctx, at)
		if err != nil {
			return err
		}
		next := slices.IndexFunc(before, func(other string) bool { return !done[other] && !seen[other] })
		if next >= 0 {
			stack = append(stack, before[next])
			continue
		}
		done[at], stack = true, stack[:len(stack)-1]
		if err := yield(at); err != nil {
			return err
		}
	}
	return nil
}

// openBefore returns the jobs that a job comes after and that have not ended.
func (a *Archive) openBefore(ctx context.Context, id string) ([]string, error) {
	after, err := a.rdb.HGet(ctx, recordKey(id), "after").Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read job %s: %w", id, err)
	}
	states, err := a.states(ctx, record{"after": after}.list("after"))
	var open []string
	for other, st := range states {
		if !st.Terminal() {
			open = append(open, other)
		}
	}
	slices.Sort(open)
	return open, err
}

// states reads the states of jobs. Those that do not exist are left out.
func (a *Archive) states(ctx context.Context, ids []string) (map[string]Status, error) {
	got := make([]*redis.StringCmd, len(ids))
	_, err := a.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			got[i] = p.HGet(ctx, recordKey(id), "status")
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("read the states of jobs: %w", err)
	}
	out := map[string]Status{}
	for i, id := range ids {
		if st := got[i].Val(); st != "" {
			out[id] = Status(st)
		}
	}
	return out, nil
}

// eachSeq calls fn with all jobs in the order in which they were created, and the fields kind, status and updated.
func (a *Archive) eachSeq(ctx context.Context, fn func(id string, r record) error) error {
	fields := []string{"kind", "status", "updated"}
	for from := "-inf"; ; {
		page, err := a.rdb.ZRangeByScoreWithScores(ctx, allKey, &redis.ZRangeBy{Min: from, Max: "+inf", Count: listChunk}).Result()
		if err != nil {
			return fmt.Errorf("list jobs: %w", err)
		}
		if len(page) == 0 {
			return nil
		}
		got := make([]*redis.SliceCmd, len(page))
		if _, err := a.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, z := range page {
				got[i] = p.HMGet(ctx, recordKey(fmt.Sprint(z.Member)), fields...)
			}
			return nil
		}); err != nil {
			return fmt.Errorf("read jobs: %w", err)
		}
		for i, z := range page {
			r := record{}
			for n, v := range got[i].Val() {
				r[fields[n]] = toString(v)
			}
			if r["kind"] == "" { // it was deleted meanwhile
				continue
			}
			if err := fn(fmt.Sprint(z.Member), r); err != nil {
				return err
			}
		}
		from = "(" + strconv.FormatFloat(page[len(page)-1].Score, 'f', -1, 64)
	}
}

// Read returns a job without its items: its record as it is at one moment. A job of another kind that runs comes back
// as one that has failed, because what runs it is not in a backup. It returns ErrNotFound.
func (a *Archive) Read(ctx context.Context, id string) (Saved, error) {
	r, err := a.read(ctx, id)
	if err != nil {
		return Saved{}, err
	}
	states, err := a.states(ctx, r.list("after"))
	if err != nil {
		return Saved{}, err
	}
	for other, st := range states {
		if st.Terminal() {
			r["after:"+other] = string(st)
		}
	}
	if r["kind"] != KindPipeline && !r.status().Terminal() {
		now, err := a.now(ctx)
		if err != nil {
			return Saved{}, err
		}
		r["status"], r["ended"], r["final"] = string(Failed), strconv.FormatInt(now.UnixMilli(), 10), `{"items":{}}`
		r["error"] = "it was running when the backup was made; start it again"
	}
	j := Job{ID: id}
	if err := (&Reader{a.store}).usage(ctx, []*Job{&j}); err != nil {
		return Saved{}, err
	}
	events, err := event.New(a.rdb).Read(ctx, id, "0-0", maxEvents, 0)
	if err != nil {
		return Saved{}, err
	}
	return Saved{ID: id, Record: r.saved(), Usage: j.AgentUsage, Events: events.Events}, nil
}

// Items calls yield with the stages of a job that take the job, and then with its items, each as it is at one moment.
// The stages come first, so that all items are there which a stage that has ended has emitted.
func (a *Archive) Items(ctx context.Context, id string, yield func(SavedItem) error) error {
	p, err := a.planOrNone(ctx, id)
	if err != nil || p == nil {
		return err
	}
	var stages []string
	for _, st := range p.Stages {
		if st.Takes == pipeline.TakesJob {
			stages = append(stages, stageID(st.Name))
		}
	}
	q := a.queue(id)
	infos, err := q.Get(ctx, stages...)
	if err != nil {
		return err
	}
	for cursor := ""; ; {
		for _, info := range infos {
			if err := yield(savedItem(id, info)); err != nil {
				return err
			}
		}
		if cursor == "end" {
			return nil
		}
		if infos, cursor, err = q.Scan(ctx, cursor, itemChunk); err != nil {
			return err
		}
		infos = slices.DeleteFunc(infos, func(info workqueue.Info) bool { return slices.Contains(stages, info.ID) })
		if cursor == "" {
			cursor = "end"
		}
	}
}

// Document returns the document of the job, or nil.
func (s Saved) Document() *Document { return record{"doc": string(s.Record["doc"])}.document() }

// Seed creates a job with an id, unless there is one. It reports whether it is new.
func (a *Archive) Seed(ctx context.Context, id string, req Request) (bool, error) {
	if _, err := a.read(ctx, id); !errors.Is(err, ErrNotFound) {
		return false, err
	}
	req.Dedupe = DedupeAllow
	_, created, err := a.service.create(ctx, id, req, "")
	return created, err
}

// saveUsage returns usage of another store as the hash of usageKey has it.
func saveUsage(usage map[string]map[string]int64) []any {
	var args []any
	for agent, names := range usage {
		for name, n := range names {
			args = append(args, restoredUsage+agent+" "+name, n)
		}
	}
	return args
}

// eventArgs are events as lua/restore.lua takes them.
func eventArgs(events []event.Event) ([]any, error) {
	var args []any
	for _, e := range events {
		ms, _, ok := strings.Cut(e.ID, "-")
		if _, err := strconv.ParseUint(ms, 10, 63); err != nil || !ok {
			return nil, fmt.Errorf("%.60q is not the id of an event", e.ID)
		}
		data := e.Data
		if len(data) > 0 && !json.Valid(data) {
			return nil, fmt.Errorf("the data of event %s is not JSON", e.ID)
		}
		args = append(args, e.ID, e.Type, strconv.FormatInt(e.Time.UnixMilli(), 10), string(data), ms)
	}
	return args, nil
}
