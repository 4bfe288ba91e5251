package tasks_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/internal/store"
)

// eachReady calls f with every ready list of the default queue, of normal priority, and with its ring if it contains
// nodes.
func eachReady(t *testing.T, rdb redis.UniversalClient, f func(list string, elements []string)) {
	t.Helper()
	for _, shard := range shards(t, rdb) {
		ring := rdb.LRange(t.Context(), shard+"ring:default", 0, -1).Val()
		if slices.ContainsFunc(ring, func(key string) bool { return !strings.HasPrefix(key, "=") }) {
			f(shard+"ring:default", ring)
			continue
		}
		for _, key := range ring {
			list := shard + "ready:n:default:" + strings.TrimPrefix(key, "=")
			f(list, rdb.LRange(t.Context(), list, 0, -1).Val())
		}
	}
}

// takeAs takes all ready nodes of the default queue in the name of a worker that does nothing more. It returns how many
// elements of the ready lists that were.
func takeAs(t *testing.T, rdb redis.UniversalClient, worker string) int {
	t.Helper()
	took := 0
	for i, shard := range shards(t, rdb) {
		var batch []string
		eachReady(t, rdb, func(list string, elements []string) {
			if strings.HasPrefix(list, shard) {
				batch = append(batch, elements...)
				rdb.Del(t.Context(), list)
			}
		})
		if len(batch) == 0 {
			continue
		}
		took += len(batch)
		rdb.Del(t.Context(), shard+"ring:default")
		rdb.HSet(t.Context(), shard+"queue:default", "ready:n", 0, "ready:k", 0)
		for _, text := range batch {
			if store.IsSingle(text) {
				text += "/0"
			}
			el, err := store.ParseElement(i, text)
			if err != nil {
				t.Fatal(err)
			}
			for _, node := range el.Nodes {
				rdb.HSet(t.Context(), shard+"lease:"+worker, el.Flow.Ref+"/"+node, fmt.Sprintf("%d 1.took n:default %d", time.Now().UnixMicro(), el.Lost))
			}
		}
		rdb.SAdd(t.Context(), shard+"holders", worker)
	}
	return took
}

// snapshot saves all data of all shards. The returned function restores it: later writes are lost, and deleted keys
// exist again.
func snapshot(t *testing.T, rdb redis.UniversalClient) (rollBack func()) {
	t.Helper()
	ctx := t.Context()
	keys := func() (out []string) {
		for _, k := range rdb.Keys(ctx, "*").Val() {
			if slices.ContainsFunc(shards(t, rdb), func(shard string) bool { return strings.HasPrefix(k, shard) }) {
				out = append(out, k)
			}
		}
		return out
	}
	had := map[string]string{}
	for _, k := range keys() {
		raw, err := rdb.Dump(ctx, k).Result()
		if errors.Is(err, redis.Nil) { // deleted or expired since
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		had[k] = raw
	}
	return func() {
		t.Helper()
		pipe := rdb.TxPipeline()
		for _, k := range keys() {
			pipe.Del(ctx, k)
		}
		for k, raw := range had {
			pipe.Restore(ctx, k, 0, raw)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// pause has workers take nothing from the default queue until resume is called.
func pause(t *testing.T, w *world) (resume func()) {
	t.Helper()
	rest(t, w, "default")
	return func() {
		t.Helper()
		if err := w.client.ResumeQueue(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
	}
}
