package tasks_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
)

// A store of another schema is rejected with the remedy; the rejected worker is never listed as live.
func TestStoreOfAnotherSchemaIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make func(*testing.T, redis.UniversalClient) error
		want string
	}{
		"newer": {func(t *testing.T, rdb redis.UniversalClient) error {
			return rdb.Set(t.Context(), "muster:store", "4 1", 0).Err()
		}, "upgrade this program"},
		"no shards": {func(t *testing.T, rdb redis.UniversalClient) error {
			return rdb.Set(t.Context(), "muster:store", "3 0", 0).Err()
		}, "is it the right Redis?"},
		"none": {func(t *testing.T, rdb redis.UniversalClient) error {
			return rdb.Set(t.Context(), "muster:store", "what?", 0).Err()
		}, "is it the right Redis?"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.New(t)
			testutil.Ok(t, c.make(t, rdb))
			client := tasks.NewClient(rdb)
			if _, err := ID.S(1).Send(t.Context(), client); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("send: got error %v, want one with %q", err, c.want)
			}
			w, err := tasks.NewWorker(client, tasks.NewMux(), tasks.WorkerConfig{})
			testutil.Ok(t, err)
			if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("worker: got error %v, want one with %q", err, c.want)
			}
			if live, err := client.Workers(t.Context()); err != nil || len(live) != 0 {
				t.Errorf("got live workers %v, %v, want none", live, err)
			}
		})
	}
}
