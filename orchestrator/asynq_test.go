package orchestrator

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"muster/internal/testutil"
)

// A program that has only asynq's client starts a scrape and a refresh, and learns of unusable payloads at once.
func TestAsynqClientsStartScrapesAndRefreshes(t *testing.T) {
	t.Parallel()
	cfg, _ := worldSettings(t)
	w := serveSystemWith(t, cfg, slog.New(slog.DiscardHandler))
	rdb := w.system.Client.Redis()
	client, inspector := asynq.NewClientFromRedisClient(rdb), asynq.NewInspectorFromRedisClient(rdb)
	for _, c := range []struct {
		kind, payload string
		state         asynq.TaskState
		says          string // part of the result or of the error
	}{
		{"muster:scrape", `{"site": "shop", "limit": 1}`, asynq.TaskStateCompleted, "shop"},
		{"muster:refresh", "", asynq.TaskStateCompleted, ""},
		{"muster:scrape", `{"site": "nowhere.example"}`, asynq.TaskStateArchived, "nowhere.example"},
		{"muster:scrape", `{"site": "shop", "limits": 1}`, asynq.TaskStateArchived, `unknown field "limits"`},
		{"muster:scrape", `{"site": "shop", "limit": -1}`, asynq.TaskStateArchived, "limit: must not be negative"},
		{"muster:scrape", ``, asynq.TaskStateArchived, "payload of muster:scrape"},
	} {
		sent := testutil.Must(client.Enqueue(asynq.NewTask(c.kind, []byte(c.payload)), asynq.Retention(time.Hour)))(t)
		testutil.Eventually(t, fmt.Sprintf("%s %s has the state %v and %q", c.kind, c.payload, c.state, c.says), func() bool {
			info, err := inspector.GetTaskInfo("default", sent.ID)
			return err == nil && info.State == c.state && strings.Contains(string(info.Result)+info.LastErr, c.says)
		})
	}
}
