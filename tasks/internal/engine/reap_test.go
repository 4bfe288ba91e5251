package engine

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/tasks/redistest"
)

// What a dead worker ran of a workflow that cannot be read here does not keep the rest from being run again,
// and is there for a worker that can read it.
func TestReapGoesOnBehindWhatItCannotRead(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		sender := engineOn(t, rdb)
		newer, ours := group(t, sender, 3), group(t, sender, 3)
		cfg := config("dead", silent)
		cfg.Concurrency, cfg.MaxConcurrency = 6, 6
		if err := dequeue(NewWorker(sender, echo(), cfg)).Err(); err != nil {
			t.Fatal(err)
		}
		hs, err := sender.store.Running(t.Context())
		if err != nil || len(hs) != 6 {
			t.Fatalf("running %v, %v", hs, err)
		}
		f, err := sender.store.Flow(t.Context(), newer)
		if err != nil {
			t.Fatal(err)
		}
		raws, err := sender.store.Fields(t.Context(), f, []string{"g"})
		if err != nil {
			t.Fatal(err)
		}
		key := "muster:{s00}:w:" + newer
		rdb.HSet(t.Context(), key, "g", strings.Replace(string(raws[0]), "{", `{"v":99,`, 1))
		e := New(rdb, silent)
		t.Cleanup(e.Close)
		_ = NewWorker(e, echo(), config("heir", silent)).reap(t.Context(), nil, true)
		if hs, err := e.store.Running(t.Context()); err != nil || len(hs) != 0 {
			t.Errorf("still running: %v, %v", hs, err)
		}
		for _, n := range []string{"0", "1", "2"} {
			if rec := rdb.HGet(t.Context(), "muster:{s00}:w:"+ours, n).Val(); !strings.HasPrefix(rec, "Q|1|") {
				t.Errorf("node %s of a workflow that can be read is %s", n, rec)
			}
			if rec := rdb.HGet(t.Context(), key, n).Val(); !strings.HasPrefix(rec, "D|1|") {
				t.Errorf("node %s of a workflow that cannot is %s", n, rec)
			}
			if rdb.ZScore(t.Context(), "muster:{s00}:agenda", newer+"/"+n).Val() == 0 {
				t.Errorf("node %s of a workflow that cannot be read is not in the agenda", n)
			}
		}
	})
}
