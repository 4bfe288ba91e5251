package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Watched is a master with a replica, and the Sentinel that puts the replica in
// the place of the master when that is gone.
type Watched struct {
	Master, Replica *Instance
	sentinel        *process
}

// masterName is what the Sentinel calls the group.
const masterName = "muster"

// Sentinel starts a master, a replica and a Sentinel for tb alone, which takes
// the master for dead after half a second of silence. Directives are as in
// [Server], for both. The test is skipped where there is no redis-server.
func Sentinel(tb testing.TB, directives ...string) *Watched {
	tb.Helper()
	own := func(more ...string) []string { return append(more, directives...) }
	w := &Watched{Master: Server(tb, own("repl-diskless-sync-delay", "0")...)}
	host, port, err := net.SplitHostPort(w.Master.Addr)
	if err != nil {
		tb.Fatal(err)
	}
	w.Replica = Server(tb, own("repl-diskless-sync-delay", "0", "replicaof", host+" "+port)...)
	eventually(tb, "the replica to follow", func() (string, bool) {
		info := w.Replica.Client().Info(tb.Context(), "replication").Val()
		return info, strings.Contains(info, "master_link_status:up")
	})

	dir := tb.TempDir()
	w.sentinel = &process{dir: dir, conf: filepath.Join(dir, "sentinel.conf"), args: []string{"--sentinel"}}
	conf := fmt.Sprintf("sentinel monitor %[1]s %[2]s %[3]s 1\nsentinel down-after-milliseconds %[1]s 500\nsentinel failover-timeout %[1]s 5000\n",
		masterName, host, port)
	if err := os.WriteFile(w.sentinel.conf, []byte(conf), 0o600); err != nil {
		tb.Fatal(err)
	}
	if err := w.sentinel.startAnywhere(); err != nil {
		tb.Fatalf("start a Sentinel: %v", err)
	}
	tb.Cleanup(w.sentinel.free)
	ask := w.ask()
	defer func() { _ = ask.Close() }()
	eventually(tb, "the Sentinel to know the replica", func() (string, bool) {
		known, err := ask.Replicas(tb.Context(), masterName).Result()
		return fmt.Sprint(known, err), len(known) == 1 && known[0]["master-link-status"] == "ok"
	})
	return w
}

func (w *Watched) ask() *redis.SentinelClient {
	return redis.NewSentinelClient(&redis.Options{Addr: w.sentinel.addr, MaintNotificationsConfig: noNotifications()})
}

// Failover has the Sentinel put the replica in the place of the master, which
// lives. It returns once that has begun; who still talks to the old master is
// told when it is over.
func (w *Watched) Failover(ctx context.Context) error {
	ask := w.ask()
	defer func() { _ = ask.Close() }()
	return ask.Failover(ctx, masterName).Err()
}

// URL returns the redis-sentinel:// address of the group.
func (w *Watched) URL() string {
	return "redis-sentinel://" + w.sentinel.addr + "/" + masterName
}

// eventually waits for a fact that a server is to tell.
func eventually(tb testing.TB, what string, fact func() (told string, ok bool)) {
	tb.Helper()
	deadline := time.After(startTimeout)
	for {
		told, ok := fact()
		if ok {
			return
		}
		select {
		case <-deadline:
			tb.Fatalf("waited in vain for %s: %s", what, told)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
