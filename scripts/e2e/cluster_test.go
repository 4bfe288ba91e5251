//go:build e2e && unix

package e2e

import (
	"os"
	"testing"

	"muster/internal/redistest"
)

// TestOnCluster runs a round on a Redis Cluster of three nodes and kills a worker during it.
func TestOnCluster(t *testing.T) {
	t.Parallel()
	b := setup(t)
	env := append(os.Environ(), "MUSTER_REDIS__URL="+redistest.ClusterURL(t), "MUSTER_REDIS__MODE=auto")
	r := muster(t, env, b.onceArgs("--setting", "workers.processes=2")...)
	r.until(t, "pages being fetched", func() bool { return b.pagesAsked() >= 30 && len(b.workers(t)) > 0 })
	kill9(t, b.workers(t)[0])
	r.wait(t, 0)
	s := r.summary(t)
	if s.Redis != "external" {
		t.Errorf("it ran on Redis %q, want external", s.Redis)
	}
	wantAll(t, b.World, s)
	b.wantFetchedOnce(t, concurrency)
	b.wantQuiet(t)
}
