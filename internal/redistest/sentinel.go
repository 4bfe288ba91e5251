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

// Watched is a master with a replica and a Sentinel, which promotes the replica when the master fails.
type Watched struct {
	Master, Replica *Instance
	sentinel        *process
}

// masterName is the name of the group in the Sentinel.
const masterName = "muster"

// Sentinel starts a master, a replica and a Sentinel for tb only. The Sentinel considers the master down after half a
// second without a reply. Directives are as in [Server], for both servers. The test is skipped without a
// redis-server.
func Sentinel(tb testing.TB, directives ...string) *Watched {
	tb.Helper()
	own := func(more ...string) []string { return append(more, directives...) }
	w := &Watched{Master: Server(tb, own("repl-diskless-sync-delay", "0")...)}
	host, port, err := net.SplitHostPort(w.Master.Addr)
	if err != nil {
		tb.Fatal(err)
	}
	w.Replica = Server(tb, own("repl-diskless-sync-delay", "0", "replicaof", host+" "+port)...)
	eventually(tb, "the replica is connected", func() (string, bool) {
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
	eventually(tb, "the Sentinel knows the replica", func() (string, bool) {
		known, err := ask.Replicas(tb.Context(), masterName).Result()
		return fmt.Sprint(known, err), len(known) == 1 && known[0]["master-link-status"] == "ok"
	})
	return w
}

func (w *Watched) ask() *redis.SentinelClient {
	return redis.NewSentinelClient(&redis.Options{Addr: w.sentinel.addr, MaintNotificationsConfig: noNotifications()})
}

// Failover makes the Sentinel promote the replica while the master is running. It returns when the failover has
// started; clients of the old master are disconnected at its end.
func (w *Watched) Failover(ctx context.Context) error {
	ask := w.ask()
	defer func() { _ = ask.Close() }()
	return ask.Failover(ctx, masterName).Err()
}

// URL returns the redis-sentinel:// address of the group.
func (w *Watched) URL() string {
	return "redis-sentinel://" + w.sentinel.addr + "/" + masterName
}

// eventually waits until fact reports ok. After startTimeout it fails the test with the last state.
func eventually(tb testing.TB, what string, fact func() (state string, ok bool)) {
	tb.Helper()
	deadline := time.After(startTimeout)
	for {
		state, ok := fact()
		if ok {
			return
		}
		select {
		case <-deadline:
			tb.Fatalf("after %s still not true: %s; got %s", startTimeout, what, state)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
