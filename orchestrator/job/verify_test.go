package job_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/orchestrator/job"
	"muster/orchestrator/store"
)

// verify returns what is wrong, and repairs it if asked to.
func (w *world) verify(repair bool) []string {
	w.t.Helper()
	var list []string
	report := func(f job.Finding) error {
		if f.Repaired != repair {
			w.t.Errorf("%+v: got repaired %v, want %v", f, f.Repaired, repair)
		}
		list = append(list, f.Key+" "+f.Problem)
		return nil
	}
	var err error
	if repair {
		err = store.New(w.client.Redis(), nil, nil).Hold(w.ctx, "testing", func(ctx context.Context, lock *store.Lock) error {
			if err := lock.Claim(ctx, job.Slot); err != nil {
				return err
			}
			_, err := job.NewArchive(w.Service).Verify(ctx, lock, report)
			return err
		})
	} else {
		_, err = job.NewArchive(w.Service).Verify(w.ctx, nil, report)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	slices.Sort(list)
	return slices.Compact(list) // a scan may return a key twice
}

// Whatever of the keys of jobs is damaged is found, and put right by the records.
func TestDamageIsFoundAndRepaired(t *testing.T) {
	const p = "muster:{jobs}:"
	type fixture struct {
		*world
		rdb         redis.UniversalClient
		ended, open string
		doc         string
	}
	for name, c := range map[string]struct {
		damage func(f fixture) error
		want   string // in the first finding
	}{
		"not in an index":     {func(f fixture) error { return f.rdb.ZRem(f.ctx, p+"kind:pipeline", f.open).Err() }, "is missing in " + p + "kind:pipeline"},
		"not among the ended": {func(f fixture) error { return f.rdb.Del(f.ctx, p+"ended:pipeline:completed").Err() }, "is missing in " + p + "ended:pipeline:completed"},
		"another place":       {func(f fixture) error { return f.rdb.ZAdd(f.ctx, p+"all", redis.Z{Score: 77, Member: f.open}).Err() }, "is missing in " + p + "all"},
		"in two states": {func(f fixture) error {
			return f.rdb.ZAdd(f.ctx, p+"status:failed", redis.Z{Score: 1, Member: f.open}).Err()
		}, p + "status:failed lists a job that does not belong there"},
		"listed and gone": {func(f fixture) error {
			return f.rdb.ZAdd(f.ctx, p+"label:blue", redis.Z{Score: 1, Member: "gone"}).Err()
		}, p + "label:blue lists a job that does not exist"},
		"index of before schema 1": {func(f fixture) error { return f.rdb.ZAdd(f.ctx, p+"ended", redis.Z{Score: 1, Member: f.ended}).Err() }, p + "ended lists a job that does not belong there"},
		"usage without a job":      {func(f fixture) error { return f.rdb.HSet(f.ctx, p+"u:gone", "a", 1).Err() }, p + "u:gone belongs to a job that does not exist"},
		"events without a job": {func(f fixture) error {
			return f.rdb.XAdd(f.ctx, &redis.XAddArgs{Stream: p + "events:gone", Values: []any{"a", 1}}).Err()
		}, p + "events:gone belongs to a job"},
		"items without a job": {func(f fixture) error { return f.rdb.HSet(f.ctx, "muster:wq:{job:gone}:meta", "v", 1).Err() }, "the items belong to a job that does not exist"},
		"wrong counter": {func(f fixture) error {
			return f.rdb.HIncrBy(f.ctx, "muster:wq:{job:"+f.open+"}:counts", "queued", 3).Err()
		}, "queued, recounted"},
		"document without the job":    {func(f fixture) error { return f.rdb.SAdd(f.ctx, p+"doc:"+f.doc, "gone").Err() }, p + "doc:" + strings.Repeat("a", 64) + " lists a job that does not exist"},
		"its last step was forgotten": {func(f fixture) error { return f.rdb.HDel(f.ctx, p+"j:"+f.ended, "final").Err() }, "its last step is not due"},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, nil, func(t *testing.T, w *world) {
				f := fixture{world: w, rdb: w.client.Redis(), doc: strings.Repeat("a", 64)}
				f.ended = w.create(job.Request{Labels: []string{"red"}, Document: &job.Document{Name: "a", Hash: f.doc, Size: 1}, Context: []byte(`{"customer":"acme"}`)}).ID
				w.emit("one")
				w.complete(w.take("validator", "v"), job.Answer{})
				w.until(f.ended, job.Completed)
				f.open = w.create(job.Request{}).ID
				w.emit("one", "two")
				w.take("validator", "v")
				if list := w.verify(false); len(list) > 0 {
					t.Fatalf("before: got %v, want nothing wrong", list)
				}
				if err := c.damage(f); err != nil {
					t.Fatal(err)
				}
				for _, repair := range []bool{false, true} {
					if list := w.verify(repair); len(list) == 0 || !slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, c.want) }) {
						t.Fatalf("repair %v: got %q, want %q", repair, list, c.want)
					}
				}
				if list := w.verify(false); len(list) > 0 {
					t.Errorf("after: got %q, want that it is repaired", list)
				}
				w.complete(w.take("validator", "v"), job.Answer{})
			})
		})
	}
}

// However the number of the last job was lost, and the list of all jobs with it, a repair finds it in the records: no
// number comes again.
func TestNumbersOfJobsDoNotRepeatAfterARepair(t *testing.T) {
	const seq, all = "muster:{jobs}:seq", "muster:{jobs}:all"
	for name, damage := range map[string]func(ctx context.Context, rdb redis.Cmdable) error{
		"no number":         func(ctx context.Context, rdb redis.Cmdable) error { return rdb.Set(ctx, seq, "x", 0).Err() },
		"lost":              func(ctx context.Context, rdb redis.Cmdable) error { return rdb.Del(ctx, seq).Err() },
		"lost, as the list": func(ctx context.Context, rdb redis.Cmdable) error { return rdb.Del(ctx, seq, all).Err() },
		"too low":           func(ctx context.Context, rdb redis.Cmdable) error { return rdb.Set(ctx, seq, 1, 0).Err() },
		"no number, and the list of another type": func(ctx context.Context, rdb redis.Cmdable) error {
			return errors.Join(rdb.Set(ctx, seq, "x", 0).Err(), rdb.Set(ctx, all, "x", 0).Err())
		},
		"both of another type": func(ctx context.Context, rdb redis.Cmdable) error {
			return errors.Join(rdb.Del(ctx, seq).Err(), rdb.RPush(ctx, seq, "x").Err(), rdb.Set(ctx, all, "x", 0).Err())
		},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, nil, func(t *testing.T, w *world) {
				rdb := w.client.Redis()
				for range 3 {
					w.create(job.Request{})
				}
				if err := damage(w.ctx, rdb); err != nil {
					t.Fatal(err)
				}
				if list := w.verify(true); !slices.ContainsFunc(list, func(s string) bool { return strings.HasPrefix(s, seq+" ") }) {
					t.Errorf("repair: got %q, want a finding about %s", list, seq)
				}
				j := w.create(job.Request{})
				if got := rdb.HGet(w.ctx, "muster:{jobs}:j:"+j.ID, "seq").Val(); got != "4" {
					t.Errorf("the fourth job: got the number %s, want 4", got)
				}
				if list := w.verify(false); len(list) > 0 {
					t.Errorf("after: got %q, want that it is repaired", list)
				}
			})
		})
	}
}

// Who lost the lock changes nothing, wherever it is.
func TestOlderLockChangesNothing(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		rdb := w.client.Redis()
		j := w.create(job.Request{Prompt: "x"})
		saved, err := job.NewArchive(w.Service).Read(w.ctx, j.ID)
		if err != nil {
			t.Fatal(err)
		}
		saved.ID = "restored"
		rdb.HSet(w.ctx, "muster:{jobs}:u:gone", "a", 1)
		err = store.New(rdb, nil, nil).Hold(w.ctx, "testing", func(ctx context.Context, lock *store.Lock) error {
			if err := lock.Claim(ctx, job.Slot); err != nil {
				return err
			}
			v, err := job.NewArchive(w.Service).Restore(ctx, saved, job.RestoreOptions{Lock: lock})
			if err != nil {
				return err
			}
			if err := rdb.Set(ctx, store.FenceKey(job.Slot), lock.Token()+1, 0).Err(); err != nil { // another has taken over
				return err
			}
			if err := v.Commit(ctx); !errors.Is(err, store.ErrLost) {
				t.Errorf("restore: got %v, want %v", err, store.ErrLost)
			}
			if _, err := job.NewArchive(w.Service).Verify(ctx, lock, func(job.Finding) error { return nil }); !errors.Is(err, store.ErrLost) {
				t.Errorf("repair: got %v, want %v", err, store.ErrLost)
			}
			rdb.ZAdd(ctx, "muster:{jobs}:ended", redis.Z{Score: 1, Member: j.ID})
			if err := job.EndedByKind(1).Run(ctx, rdb, lock); !store.IsFenced(err) {
				t.Errorf("migrate: got %v, want that it is fenced off", err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Get(w.ctx, "restored"); !errors.Is(err, job.ErrNotFound) {
			t.Errorf("got %v, want that the job was not restored", err)
		}
		if n, err := rdb.Exists(w.ctx, "muster:{jobs}:u:gone").Result(); err != nil || n != 1 {
			t.Errorf("got %d keys, %v, want that nothing was repaired", n, err)
		}
	})
}
