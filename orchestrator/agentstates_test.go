package orchestrator

import (
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs"
	"muster/jobs/agent"
	"muster/tasks"
)

// Agents send three heartbeats per lease and are healthy, however long the lease is.
func TestAgentsOfLongLeasesAreHealthy(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	client := tasks.NewClient(rdb)
	t.Cleanup(func() { _ = client.Close() })
	all := testutil.Must(jobs.New(jobs.Config{Client: client}))(t)
	agents := testutil.Must(agent.New(agent.Config{Client: client, Jobs: all}))(t)
	a, _, err := agents.Register(t.Context(), agent.Registration{Name: "one", Roles: []string{"creator"}})
	testutil.Ok(t, err)
	seen := redis.Z{Member: a.ID, Score: float64(time.Now().Add(-2 * time.Minute).UnixMilli())}
	testutil.Ok(t, rdb.ZAdd(t.Context(), "muster:{agents}:seen", seen).Err())
	for lease, want := range map[time.Duration]string{30 * time.Second: agent.StateUnavailable, 5 * time.Minute: agent.StateHealthy} {
		cfg := settings(t)
		cfg.Jobs.Lease = lease
		system := testutil.Must(NewSystem(cfg, client, slog.New(slog.DiscardHandler)))(t)
		got, err := system.Agents.List(t.Context())
		if err != nil || len(got) != 1 || got[0].State != want {
			t.Errorf("lease %v: got %+v, %v, want it %s", lease, got, err, want)
		}
	}
}
