package redistest

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// ReplicatedCluster is a Redis Cluster of three masters with a replica each.
type ReplicatedCluster struct {
	Masters, Replicas []*Instance // as they were at the start; Replicas[i] replicates Masters[i]
	all               *cluster
}

// Replicated starts a Redis Cluster of three masters and three replicas for tb only. A replica is promoted when its master was
// silent for one to two seconds. Directives are as in [Server], for all nodes. The test is skipped without a redis-server.
func Replicated(tb testing.TB, directives ...string) *ReplicatedCluster {
	tb.Helper()
	needServer(tb)
	args := []string{"--cluster-node-timeout", "1000"}
	for i := 0; i < len(directives); i += 2 {
		args = append(args, "--"+directives[i], directives[i+1])
	}
	all, err := startCluster(2*masters, args...)
	if err != nil {
		tb.Fatalf("start a Redis Cluster: %v", err)
	}
	tb.Cleanup(all.kill)
	c := &ReplicatedCluster{all: all}
	for i, p := range all.nodes {
		in := &Instance{Addr: p.addr, Dir: p.dir, tb: tb, proc: p}
		if i < masters {
			c.Masters = append(c.Masters, in)
		} else {
			c.Replicas = append(c.Replicas, in)
		}
	}
	return c
}

// URL returns the redis-cluster:// address of the cluster.
func (c *ReplicatedCluster) URL() string {
	return "redis-cluster://" + strings.Join(c.all.addrs(), ",")
}

// Client returns a client of the cluster that is closed with tb.
func (c *ReplicatedCluster) Client(tb testing.TB) redis.UniversalClient {
	rdb := c.all.client()
	tb.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// Failover makes a replica the master without loss: the old master rejects writes until the replica has them all. It returns when
// the replica is the master.
func (c *ReplicatedCluster) Failover(tb testing.TB, replica *Instance) {
	tb.Helper()
	rdb := replica.Client()
	var asked time.Time
	eventually(tb, "the replica is the master", func() (string, bool) {
		info := rdb.Info(tb.Context(), "replication").Val()
		if strings.Contains(info, "role:master") {
			return info, true
		}
		if time.Since(asked) > failoverRetry { // it is rejected while the link to the master is down, or other masters have not learned of a moved slot
			_ = rdb.ClusterFailover(tb.Context()).Err()
			asked = time.Now()
		}
		return info, false
	})
}

// failoverRetry is how long a failover may take before it is started again.
const failoverRetry = 2 * time.Second

// MoveSlot moves the slot of a key to another master, as redis-cli --cluster reshard does, and returns the number of its keys.
// During the move, each key is on one of the two nodes.
func (c *ReplicatedCluster) MoveSlot(ctx context.Context, key string, from, to *Instance) (keys int, err error) {
	source, target := from.Client(), to.Client()
	slot, err := source.ClusterKeySlot(ctx, key).Result()
	if err != nil {
		return 0, fmt.Errorf("move the slot of %s: %w", key, err)
	}
	sourceID, err := source.Do(ctx, "cluster", "myid").Text()
	if err != nil {
		return 0, fmt.Errorf("move slot %d: %w", slot, err)
	}
	targetID, err := target.Do(ctx, "cluster", "myid").Text()
	if err != nil {
		return 0, fmt.Errorf("move slot %d: %w", slot, err)
	}
	host, port, err := net.SplitHostPort(to.Addr)
	if err != nil {
		return 0, err
	}
	if err := target.Do(ctx, "cluster", "setslot", slot, "importing", sourceID).Err(); err != nil {
		return 0, fmt.Errorf("import slot %d: %w", slot, err)
	}
	if err := source.Do(ctx, "cluster", "setslot", slot, "migrating", targetID).Err(); err != nil {
		return 0, fmt.Errorf("migrate slot %d: %w", slot, err)
	}
	for {
		some, err := source.ClusterGetKeysInSlot(ctx, int(slot), 10).Result()
		if err != nil {
			return keys, fmt.Errorf("list keys of slot %d: %w", slot, err)
		}
		if len(some) == 0 {
			break
		}
		args := []any{"migrate", host, port, "", 0, 5000, "keys"}
		for _, key := range some {
			args = append(args, key)
		}
		if err := source.Do(ctx, args...).Err(); err != nil {
			return keys, fmt.Errorf("migrate keys of slot %d: %w", slot, err)
		}
		keys += len(some)
	}
	for _, rdb := range []redis.UniversalClient{target, source} {
		if err := rdb.Do(ctx, "cluster", "setslot", slot, "node", targetID).Err(); err != nil {
			return keys, fmt.Errorf("assign slot %d: %w", slot, err)
		}
	}
	return keys, nil
}
