package tasks_test

import (
	"fmt"
	"hash/crc32"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks/internal/store"
)

// shards returns the prefixes of the keys of all shards.
func shards(t *testing.T, rdb redis.UniversalClient) []string {
	t.Helper()
	said, err := rdb.Get(t.Context(), "muster:store").Result()
	testutil.Ok(t, err)
	var schema, n int
	if _, err := fmt.Sscan(said, &schema, &n); err != nil {
		t.Fatalf("muster:store holds %q: %v", said, err)
	}
	out := make([]string, n)
	for i := range out {
		out[i] = store.Keys(store.DefaultNamespace).Prefix(i)
	}
	return out
}

// flowKey returns the key of the latest workflow with an id.
func flowKey(t *testing.T, rdb redis.UniversalClient, id string) string {
	t.Helper()
	all := shards(t, rdb)
	shard := all[int(crc32.ChecksumIEEE([]byte(id))%uint32(len(all)))]
	if ref := rdb.Get(t.Context(), shard+"id:"+id).Val(); ref != "" {
		return shard + "w:" + ref
	}
	return shard + "w:" + id + "~"
}
