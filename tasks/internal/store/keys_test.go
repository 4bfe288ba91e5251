package store

import (
	"testing"

	"muster/internal/redistest"
)

const testKeys = Keys(DefaultNamespace)

// Servers with equal ranges of slots have equally many shards.
func TestShardsAreSpreadOverServers(t *testing.T) {
	t.Parallel()
	rdb := redistest.Cluster(t)
	for _, servers := range []int{2, 3, 4, 6} {
		counts := make([]int, servers)
		for shard := range clusterShards {
			slot, err := rdb.ClusterKeySlot(t.Context(), testKeys.Prefix(shard)).Result()
			if err != nil {
				t.Fatal(err)
			}
			counts[int(slot)*servers/16384]++
		}
		for i, n := range counts {
			if n != clusterShards/servers {
				t.Errorf("server %d of %d has %d of %d shards", i+1, servers, n, clusterShards)
			}
		}
	}
}
