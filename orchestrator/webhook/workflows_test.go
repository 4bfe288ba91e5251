package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs"
	"muster/jobs/agent"
	"muster/tasks"
)

// Endpoints that name them get events of workflows, by name and label.
func TestEventsOfWorkflows(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		cfg := quick(t, rdb)
		client := tasks.NewClient(rdb)
		cfg.Workflows = client
		t.Cleanup(func() { _ = client.Close() })
		k := open(t, cfg)
		k.run(t)
		want := map[*receiver][]string{}
		create := func(n NewEndpoint, ids ...string) Endpoint {
			r := newReceiver(t, nil)
			n.URL = r.URL
			e, _, err := k.Create(t.Context(), n)
			testutil.Ok(t, err)
			want[r] = ids
			return e
		}
		create(NewEndpoint{})
		create(NewEndpoint{Events: []string{"*", "job.*"}})
		testutil.Eventually(t, "the relay is idle", func() bool { return k.passed(t) })
		if n := rdb.Exists(t.Context(), "muster:{0}:readers").Val(); n != 0 {
			t.Error("events of workflows are read without an endpoint that gets them")
		}
		create(NewEndpoint{Events: []string{"workflow.*"}}, "workflow.failed failed", "workflow.revoked named", "workflow.revoked plain", "workflow.stuck stuck")
		create(NewEndpoint{Events: []string{"workflow.revoked", "job.*"}, Workflows: []string{"billing-*", "other"}}, "workflow.revoked named")
		create(NewEndpoint{Events: []string{"workflow.failed"}, Labels: []string{"team=x"}}, "workflow.failed failed")
		off := create(NewEndpoint{Events: []string{"workflow.revoked"}, Workflows: []string{"*"}}, "workflow.revoked job", "workflow.revoked named", "workflow.revoked plain", "workflow.revoked scrape")
		send := func(task, id string, opts ...tasks.SendOption) *tasks.Run[struct{}] {
			return testutil.Must(tasks.New[int, struct{}](task).S(1).Send(t.Context(), client, append(opts, tasks.ID(id))...))(t)
		}
		for _, run := range []*tasks.Run[struct{}]{send("work", "named", tasks.Name("billing-7")), send("work", "plain"), send("sites.crawl", "scrape"),
			send("work", "job", tasks.Labels(map[string]string{agent.WorkflowLabel: "j1"}))} {
			testutil.Ok(t, run.Revoke(t.Context()))
		}
		mux := tasks.NewMux()
		tasks.HandleAction(mux, tasks.New[int, struct{}]("work"), func(context.Context, int) error { return tasks.Permanent(errors.New("no money")) })
		worker := testutil.Must(tasks.NewWorker(client, mux, tasks.WorkerConfig{Queues: map[string]int{"served": 1}}))(t)
		testutil.Background(t, worker.Run)
		testutil.Ok(t, send("work", "failed", tasks.Queue("served"), tasks.Labels(map[string]string{"team": "x"})).WaitAll(t.Context()))
		send("work", "stuck")
		testutil.Ok(t, client.Inspect().FindStuck(t.Context(), 0))
		for r, ids := range want {
			var got []string
			testutil.Eventually(t, "the events of an endpoint", func() bool { return len(r.requests()) >= len(ids) })
			for _, g := range r.requests() {
				var m struct {
					Type string
					Data struct{ Details workflowDetails }
				}
				testutil.Ok(t, json.Unmarshal([]byte(g.body), &m))
				got = append(got, m.Type+" "+m.Data.Details.ID)
				if f := m.Data.Details.Failure; (m.Type == "workflow.failed") != (f != nil && strings.Contains(f.Message, "no money")) {
					t.Errorf("got %s", g.body)
				}
			}
			if slices.Sort(got); !slices.Equal(got, ids) {
				t.Errorf("got %v, want %v", got, ids)
			}
		}
		for _, e := range testutil.Must(k.List(t.Context()))(t) {
			if e.ID != off.ID {
				testutil.Ok(t, k.Remove(t.Context(), e.ID))
			}
		}
		testutil.Must(k.Edit(t.Context(), off.ID, EndpointEdit{Events: &[]string{"job.*"}}))(t)
		testutil.Eventually(t, "nothing is kept", func() bool { return rdb.Exists(t.Context(), "muster:{0}:readers").Val() == 0 })
		if _, _, err := k.Create(t.Context(), NewEndpoint{URL: "http://127.0.0.1:1/", Labels: []string{"x"}}); !errors.As(err, new(*jobs.FieldError)) {
			t.Errorf("an invalid label: got %v", err)
		}
	})
}
