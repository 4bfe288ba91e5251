package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// clusters are reused by later tests: a cluster has only one database, so each test needs its own cluster, and a new
// one accepts writes only after two seconds.
var clusters struct {
	mu   sync.Mutex // guards the fields below
	all  []*cluster
	free []*cluster
}

// masters is the number of masters of a cluster.
const masters = 3

// cluster is a Redis Cluster of three masters, and perhaps replicas of them.
type cluster struct {
	dir   string
	nodes []*process // the masters, then the replica of each
}

// Cluster returns a client of an empty Redis Cluster of three nodes for tb only. It rejects commands and scripts with
// keys in different slots. The test is skipped without a redis-server.
func Cluster(tb testing.TB) redis.UniversalClient {
	tb.Helper()
	rdb := lendCluster(tb).client()
	tb.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// ClusterURL returns the redis-cluster:// address of an empty Redis Cluster of three nodes for tb only.
func ClusterURL(tb testing.TB) string {
	tb.Helper()
	return "redis-cluster://" + strings.Join(lendCluster(tb).addrs(), ",")
}

func lendCluster(tb testing.TB) *cluster {
	tb.Helper()
	needServer(tb)
	c, err := takeCluster()
	if err != nil {
		tb.Fatalf("start a Redis Cluster: %v", err)
	}
	tb.Cleanup(func() {
		clusters.mu.Lock()
		defer clusters.mu.Unlock()
		clusters.free = append(clusters.free, c)
	})
	if err := c.flush(); err != nil {
		tb.Fatalf("flush cluster: %v", err)
	}
	return c
}

func takeCluster() (*cluster, error) {
	clusters.mu.Lock()
	if n := len(clusters.free); n > 0 {
		c := clusters.free[n-1]
		clusters.free = clusters.free[:n-1]
		clusters.mu.Unlock()
		return c, nil
	}
	clusters.mu.Unlock()
	c, err := startCluster(masters, "--cluster-node-timeout", "5000")
	if err != nil {
		return nil, err
	}
	clusters.mu.Lock()
	defer clusters.mu.Unlock()
	clusters.all = append(clusters.all, c)
	return c, nil
}

// endClusters stops all clusters.
func endClusters() {
	clusters.mu.Lock()
	defer clusters.mu.Unlock()
	for _, c := range clusters.all {
		c.kill()
	}
}

func (c *cluster) kill() {
	for _, n := range c.nodes {
		n.free()
	}
	_ = os.RemoveAll(c.dir)
}

func (c *cluster) addrs() []string {
	var out []string
	for _, n := range c.nodes {
		out = append(out, n.addr)
	}
	return out
}

func (c *cluster) client() *redis.ClusterClient {
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: c.addrs(), PoolSize: 64, MaintNotificationsConfig: noNotifications(),
	})
}

func (c *cluster) flush() error {
	rdb := c.client()
	defer func() { _ = rdb.Close() }()
	return rdb.ForEachMaster(context.Background(), func(ctx context.Context, node *redis.Client) error {
		return node.FlushAll(ctx).Err()
	})
}

// startCluster starts a cluster of three masters, and replicas up to a number of nodes.
func startCluster(nodes int, args ...string) (*cluster, error) {
	dir, err := os.MkdirTemp("", "redistest")
	if err != nil {
		return nil, err
	}
	c := &cluster{dir: dir}
	starts := make(chan error, nodes)
	for i := range nodes {
		n := &process{dir: filepath.Join(dir, fmt.Sprint(i)), bus: true, args: append([]string{
			"--save", "", "--cluster-enabled", "yes", "--repl-diskless-sync-delay", "0",
		}, args...)}
		c.nodes = append(c.nodes, n)
		go func() {
			err := os.Mkdir(n.dir, 0o700)
			if err == nil {
				err = n.startAnywhere()
			}
			starts <- err
		}()
	}
	var errs []error
	for range nodes {
		errs = append(errs, <-starts)
	}
	if err := errors.Join(errs...); err != nil {
		c.kill()
		return nil, err
	}
	if err := c.form(); err != nil {
		c.kill()
		return nil, err
	}
	return c, nil
}

// form assigns a share of the slots to each master, introduces the nodes to each other and waits until all nodes know
// all others and the replicas have the data of their masters.
func (c *cluster) form() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	var rdbs []*redis.Client
	defer func() {
		for _, rdb := range rdbs {
			_ = rdb.Close()
		}
	}()
	const slots = 16384
	for i, n := range c.nodes {
		rdb := redis.NewClient(&redis.Options{Addr: n.addr, MaintNotificationsConfig: noNotifications()})
		rdbs = append(rdbs, rdb)
		if err := rdb.Do(ctx, "cluster", "set-config-epoch", i+1).Err(); err != nil {
			return fmt.Errorf("set epoch: %w", err)
		}
		if i < masters {
			if err := rdb.ClusterAddSlotsRange(ctx, i*slots/masters, (i+1)*slots/masters-1).Err(); err != nil {
				return fmt.Errorf("assign slots: %w", err)
			}
		}
		host, port, err := net.SplitHostPort(n.addr)
		if err != nil {
			return err
		}
		// Without this, the nodes take several seconds longer to discover each other.
		for _, other := range rdbs[:i] {
			if err := other.ClusterMeet(ctx, host, port).Err(); err != nil {
				return fmt.Errorf("meet: %w", err)
			}
		}
	}
	known := fmt.Sprintf("cluster_known_nodes:%d\r", len(rdbs))
	if err := untilAll(ctx, rdbs, func(rdb *redis.Client) bool {
		info := rdb.ClusterInfo(ctx).Val()
		return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_size:3") && strings.Contains(info, known)
	}); err != nil {
		return err
	}
	for i, rdb := range rdbs[masters:] {
		id, err := rdbs[i].ClusterMyID(ctx).Result()
		if err != nil {
			return fmt.Errorf("read the ID of a master: %w", err)
		}
		if err := rdb.ClusterReplicate(ctx, id).Err(); err != nil {
			return fmt.Errorf("replicate: %w", err)
		}
	}
	return untilAll(ctx, rdbs[masters:], func(rdb *redis.Client) bool {
		return strings.Contains(rdb.Info(ctx, "replication").Val(), "master_link_status:up")
	})
}

// untilAll waits until fact is true of all nodes.
func untilAll(ctx context.Context, rdbs []*redis.Client, fact func(rdb *redis.Client) bool) error {
	for _, rdb := range rdbs {
		for !fact(rdb) {
			select {
			case <-ctx.Done():
				return errors.New("cluster is not ready")
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	return nil
}
