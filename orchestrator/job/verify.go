package job

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"muster/orchestrator/event"
	schema "muster/orchestrator/store"
	"muster/tasks/workqueue"
)

// Finding is something in the store of jobs that is not as it should be.
type Finding struct {
	Job      string `json:"job,omitempty"`
	Key      string `json:"key,omitempty"` // of Redis
	Problem  string `json:"problem"`
	Repaired bool   `json:"repaired"`
}

// Checked is what Verify has looked at.
type Checked struct {
	Jobs int `json:"jobs"`
	Keys int `json:"keys"`
}

// verifier is a run of Verify.
type verifier struct {
	*Archive
	lock    *schema.Lock // nil to change nothing
	report  func(Finding) error
	checked Checked
	highest int64           // number of a job that was looked at
	queues  map[string]bool // jobs whose queues are orphans, as far as it is known
}

// The patterns of the keys of jobs. No value of a user is in them.
const (
	jobKeys   = prefix + "*"
	queueKeys = "muster:wq:{job:*"
)

// Verify compares the records of jobs with their indexes and the counters of their queues, and looks for keys that
// belong to no job. It calls report, one call at a time, with what is wrong. It looks again before it does, so that jobs
// may be at work meanwhile. With a lock, whose slot is claimed, it repairs what it finds.
func (a *Archive) Verify(ctx context.Context, lock *schema.Lock, report func(Finding) error) (Checked, error) {
	v := &verifier{Archive: a, lock: lock, report: report, queues: map[string]bool{}}
	damaged := false
	if err := schema.EachKey(ctx, a.rdb, jobKeys, func(key string) error {
		is, err := v.damaged(ctx, key)
		damaged = damaged || is
		return err
	}); err != nil {
		return v.checked, err
	}
	if damaged && lock == nil { // what reads such a key fails
		return v.checked, v.sequence(ctx)
	}
	for _, pattern := range []string{jobKeys, queueKeys} {
		if err := schema.EachKey(ctx, a.rdb, pattern, func(key string) error { return v.key(ctx, key) }); err != nil {
			return v.checked, fmt.Errorf("check the jobs: %w", err)
		}
	}
	if err := v.sequence(ctx); err != nil {
		return v.checked, fmt.Errorf("check the jobs: %w", err)
	}
	return v.checked, nil
}

// key checks a key.
func (v *verifier) key(ctx context.Context, key string) error {
	v.checked.Keys++
	if rest, ok := strings.CutPrefix(key, strings.TrimSuffix(queueKeys, "*")); ok {
		id, _, _ := strings.Cut(rest, "}")
		return v.orphanQueue(ctx, id, key)
	}
	if id, ok := strings.CutPrefix(key, event.AllKey()+":"); ok {
		return v.owned(ctx, id, key)
	}
	name, rest, _ := strings.Cut(strings.TrimPrefix(key, prefix), ":")
	switch name {
	case "j":
		v.checked.Jobs++
		return v.job(ctx, rest)
	case "u", "p", "after":
		return v.owned(ctx, rest, key)
	case "all", "kind", "name", "label", "status", "context", "pending":
		return v.index(ctx, key)
	case "ended":
		return v.index(ctx, key) // also that of before schema 1, which no job belongs to
	case "doc":
		return v.document(ctx, key)
	}
	return nil
}

// types are the types of the keys of jobs, by the word behind the prefix.
var types = map[string]string{
	"j": "hash", "u": "hash", "p": "hash", "after": "set", "store": "string", "seq": "string", "all": "zset", "kind": "zset", "name": "zset",
	"label": "zset", "status": "zset", "context": "zset", "dedupe": "string", "idem": "hash", "doc": "set", "day": "hash", "items": "hash", "took": "hash",
	"pending": "zset", "reviews": "zset", "ended": "zset", "cron": "zset", "todo": "zset", "ready": "zset", "due": "zset", "sweep": "string", "events": "stream",
}

// damaged reports a key of another type, and numbers of a counter that are none. Whatever reads or counts there fails
// until they are removed; indexes are made again from the records.
func (v *verifier) damaged(ctx context.Context, key string) (bool, error) {
	name, _, _ := strings.Cut(strings.TrimPrefix(key, prefix), ":")
	want := types[name]
	is, err := v.rdb.Type(ctx, key).Result()
	if err != nil || want == "" || is == "none" || key == seqKey {
		return false, err
	}
	if is != want {
		none := recordKey("") // of no job
		return true, v.found(Finding{Key: key, Problem: fmt.Sprintf("is a %s, and must be a %s", is, want)},
			v.script(ctx, "orphan", []string{none, schema.FenceKey(Slot), key}, v.token()))
	}
	if name != "day" && name != "items" {
		return false, nil
	}
	counts, err := v.rdb.HGetAll(ctx, key).Result()
	damaged := false
	for field, n := range counts {
		if _, bad := strconv.ParseInt(n, 10, 64); bad != nil && err == nil {
			damaged = true
			err = v.found(Finding{Key: key, Problem: fmt.Sprintf("counts %.20q %.40q", n, field)}, func() (bool, error) {
				n, err := v.rdb.HDel(ctx, key, field).Result()
				return n == 1, err
			})
		}
	}
	return damaged, err
}

// sequence reports a number of the last job that is none, or that is below that of a job. The next job is numbered
// behind those that there are: their records say it, as all indexes may be damaged as well.
func (v *verifier) sequence(ctx context.Context) error {
	last, err := v.rdb.Get(ctx, seqKey).Int64()
	problem := fmt.Sprintf("is %d, and a job has the number %d", last, v.highest)
	switch {
	case errors.As(err, new(*strconv.NumError)) || redis.HasErrorPrefix(err, "WRONGTYPE"):
		problem = "is a key without a number"
	case err != nil && !errors.Is(err, redis.Nil):
		return err
	case last >= v.highest:
		return nil
	}
	return v.found(Finding{Key: seqKey, Problem: problem},
		v.script(ctx, "sequence", []string{schema.FenceKey(Slot), seqKey}, v.token(), v.highest))
}

// found reports a finding; repair is called first, if this run repairs. It says whether it did anything: if not, the
// store has changed meanwhile, and there is nothing to report.
func (v *verifier) found(f Finding, repair func() (bool, error)) error {
	if v.lock != nil {
		done, err := repair()
		if schema.IsFenced(err) {
			return schema.ErrLost
		}
		if err != nil {
			return err
		}
		if !done {
			return nil
		}
		f.Repaired = true
	}
	return v.report(f)
}

// script is a repair by a script that returns 1 if it did anything.
func (v *verifier) script(ctx context.Context, name string, keys []string, args ...any) func() (bool, error) {
	return func() (bool, error) {
		n, err := scripts[name].Run(ctx, v.rdb, keys, args...).Int()
		return n == 1, err
	}
}

func (v *verifier) token() any {
	if v.lock == nil {
		return ""
	}
	return v.lock.Token()
}

// owned reports a key that belongs to a job that does not exist.
func (v *verifier) owned(ctx context.Context, id, key string) error {
	for range 2 { // between the scan and this, the job and the key can be deleted, in this order
		n, err := v.rdb.Exists(ctx, recordKey(id)).Result()
		if err != nil || n > 0 {
			return err
		}
	}
	if n, err := v.rdb.Exists(ctx, key).Result(); err != nil || n == 0 {
		return err
	}
	return v.found(Finding{Job: id, Key: key, Problem: "belongs to a job that does not exist"},
		v.script(ctx, "orphan", []string{recordKey(id), schema.FenceKey(Slot), key}, v.token()))
}

// orphanQueue reports the queue of a job that does not exist. One that an import is about to complete is left alone.
func (v *verifier) orphanQueue(ctx context.Context, id, key string) error {
	if v.queues[id] {
		return nil
	}
	n, err := v.rdb.Exists(ctx, recordKey(id)).Result()
	if err != nil || n > 0 {
		return err
	}
	if n, err := v.rdb.Exists(ctx, key).Result(); err != nil || n == 0 {
		return err
	}
	v.queues[id] = true
	return v.found(Finding{Job: id, Key: key, Problem: "the items belong to a job that does not exist"}, func() (bool, error) {
		return true, v.queue(id).Delete(ctx)
	})
}

// verifyLooks is how often a job that changes meanwhile is looked at.
const verifyLooks = 5

// job checks the indexes of a job, that its end was completed, and the counters of its queue.
func (v *verifier) job(ctx context.Context, id string) error {
	var r record
	for range verifyLooks {
		var err error
		if r, err = v.read(ctx, id); errors.Is(err, ErrNotFound) || errors.As(err, new(*FieldError)) {
			return nil // deleted; or a key by hand, whose name no job has
		} else if err != nil {
			return err
		}
		v.highest = max(v.highest, r.int("seq"))
		keys, err := v.indexesOf(r)
		if err != nil {
			return v.report(Finding{Job: id, Key: recordKey(id), Problem: err.Error()})
		}
		missing, err := v.missing(ctx, id, r, keys)
		if err != nil {
			return err
		}
		if len(missing) == 0 {
			break
		}
		again, err := v.read(ctx, id)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if again["version"] != r["version"] || again["status"] != r["status"] {
			continue
		}
		none := recordKey(id)
		ended := none
		if r.status().Terminal() {
			ended = endedKey(r["kind"], r.status())
			keys = keys[:len(keys)-1]
		}
		if err := v.found(Finding{Job: id, Problem: "is missing in " + strings.Join(missing, ", ")}, v.script(ctx, "reindex",
			append([]string{none, schema.FenceKey(Slot), ended}, keys...), id, v.token(), r["version"], r["status"])); err != nil {
			return err
		}
		break
	}
	if r["kind"] != KindPipeline {
		return nil
	}
	if err := v.unfinished(ctx, id, r); err != nil {
		return err
	}
	return v.counters(ctx, id)
}

// indexesOf are the indexes of a job, and last the one of those that have ended, if it has.
func (v *verifier) indexesOf(r record) ([]string, error) {
	p, err := r.pipeline()
	if err != nil {
		return nil, err
	}
	keys := indexes(p, r["kind"], r["name"], r.status(), r.list("labels"), []byte(r["context"]))
	if r.status().Terminal() {
		keys = append(keys, endedKey(r["kind"], r.status()))
	}
	return keys, nil
}

// missing returns the indexes that should have a job and do not.
func (v *verifier) missing(ctx context.Context, id string, r record, keys []string) ([]string, error) {
	scores := make([]*redis.FloatCmd, len(keys))
	_, err := v.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, key := range keys {
			scores[i] = p.ZScore(ctx, key, id)
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	var missing []string
	for i, key := range keys {
		score, err := scores[i].Result()
		switch {
		case errors.Is(err, redis.Nil):
		case err != nil:
			return nil, err
		case strings.HasPrefix(key, endedPrefix) || int64(score) == r.int("seq"):
			continue
		}
		missing = append(missing, key)
	}
	return missing, nil
}

// unfinished reports a job that has ended, but whose last step was neither done nor is due.
func (v *verifier) unfinished(ctx context.Context, id string, r record) error {
	if !r.status().Terminal() || r["final"] != "" {
		return nil
	}
	err := v.rdb.ZScore(ctx, todoKey, id).Err()
	if !errors.Is(err, redis.Nil) {
		return err
	}
	if again, err := v.read(ctx, id); err != nil || again["final"] != "" { // it was done meanwhile
		if errors.Is(err, ErrNotFound) {
			err = nil
		}
		return err
	}
	return v.found(Finding{Job: id, Key: todoKey, Problem: "has ended, and its last step is not due"}, func() (bool, error) {
		return true, v.later(ctx, id, 0)
	})
}

// counters compares the counters of the queue of a job with its items. A queue that keeps changing is left out.
func (v *verifier) counters(ctx context.Context, id string) error {
	q := v.queue(id)
	_, err := q.Verify(ctx)
	switch {
	case err == nil, errors.Is(err, workqueue.ErrBusy):
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	if n, gone := v.rdb.Exists(ctx, recordKey(id)).Result(); gone != nil || n == 0 { // it was deleted meanwhile
		return gone
	}
	return v.found(Finding{Job: id, Problem: strings.ReplaceAll(err.Error(), "\n", "; ")}, func() (bool, error) {
		_, err := q.Repair(ctx)
		return true, err
	})
}

// index checks that the members of an index are jobs that belong to it.
func (v *verifier) index(ctx context.Context, key string) error {
	return v.members(ctx, key, func(r record) bool {
		keys, err := v.indexesOf(r)
		return err != nil || slices.Contains(keys, key) // a damaged record is reported elsewhere
	})
}

// document checks that the members of a set are jobs that have the document.
func (v *verifier) document(ctx context.Context, key string) error {
	return v.members(ctx, key, func(r record) bool {
		d := r.document()
		return d != nil && documentKey(d.Hash) == key
	})
}

// members reports the members of a sorted set or set that are no jobs, or that do not belong there.
func (v *verifier) members(ctx context.Context, key string, belongs func(record) bool) error {
	var cursor uint64
	for {
		ids, next, err := v.scanMembers(ctx, key, cursor)
		if err != nil {
			return err
		}
		for part := range slices.Chunk(ids, 100) {
			records, err := v.briefly(ctx, part)
			if err != nil {
				return err
			}
			for i, id := range part {
				if r := records[i]; r["kind"] != "" && belongs(r) {
					continue
				}
				if err := v.stray(ctx, key, id, belongs); err != nil {
					return err
				}
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// scanMembers reads a part of a sorted set or, of a document, a set.
func (v *verifier) scanMembers(ctx context.Context, key string, cursor uint64) ([]string, uint64, error) {
	if strings.HasPrefix(key, documentKey("")) {
		return v.rdb.SScan(ctx, key, cursor, "", 500).Result()
	}
	pairs, next, err := v.rdb.ZScan(ctx, key, cursor, "", 500).Result()
	ids := make([]string, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		ids = append(ids, pairs[i])
	}
	return ids, next, err
}

// briefly reads what of records says where they belong. Those that do not exist are empty.
func (v *verifier) briefly(ctx context.Context, ids []string) ([]record, error) {
	fields := []string{"kind", "name", "status", "version", "labels", "context", "pipeline", "doc"}
	got := make([]*redis.SliceCmd, len(ids))
	_, err := v.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			got[i] = p.HMGet(ctx, recordKey(id), fields...)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := make([]record, len(ids))
	for i := range got {
		out[i] = record{}
		for n, value := range got[i].Val() {
			out[i][fields[n]] = toString(value)
		}
	}
	return out, nil
}

// stray reports a member that does not belong to its set, after another look at both.
func (v *verifier) stray(ctx context.Context, key, id string, belongs func(record) bool) error {
	records, err := v.briefly(ctx, []string{id})
	if err != nil {
		return err
	}
	r := records[0]
	if r["kind"] != "" && belongs(r) {
		return nil
	}
	var there error
	if strings.HasPrefix(key, documentKey("")) {
		is, err := v.rdb.SIsMember(ctx, key, id).Result()
		if there = err; err == nil && !is {
			there = redis.Nil
		}
	} else {
		there = v.rdb.ZScore(ctx, key, id).Err()
	}
	if errors.Is(there, redis.Nil) { // it was removed meanwhile
		return nil
	}
	if there != nil {
		return there
	}
	problem := "lists a job that does not exist"
	if r["kind"] != "" {
		problem = "lists a job that does not belong there"
	}
	return v.found(Finding{Job: id, Key: key, Problem: problem},
		v.script(ctx, "unlist", []string{recordKey(id), schema.FenceKey(Slot), key}, id, v.token(), r["version"]))
}
