package ui

import (
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// past stores values, each a minute after the other, so that the last one is of this minute.
func past(t *testing.T, s *store.Store, until time.Time, measure tasktype.Measure, name string, values ...int64) {
	t.Helper()
	for i, v := range values {
		at := until.Add(time.Duration(i-len(values)+1) * time.Minute)
		testutil.Ok(t, s.History.Add(t.Context(), at, map[tasktype.Measure]map[string]int64{measure: {name: v}}))
	}
}

func TestPagesHaveHistory(t *testing.T) {
	t.Parallel()
	f, h := fleet(t, Config{})
	sent(t, f, inc.S(1))
	f.Drain()
	sent(t, f, inc.S(1, tasks.Queue("gpu")))
	if err := f.Client().Redis().SAdd(t.Context(), "asynq:queues", "gpu").Err(); err != nil { // like asynq's client
		t.Fatal(err)
	}
	s, now := store.New(f.Client().Redis(), store.DefaultNamespace), time.Now()
	past(t, s, now.Add(-24*time.Hour), tasktype.PendingTasks, "gpu", 5, 0)
	past(t, s, now, tasktype.PendingTasks, "gpu", 4, 0, 0, 3, 1200)
	live, err := f.Client().Workers(t.Context())
	if err != nil || len(live) == 0 {
		t.Fatal(live, err)
	}
	past(t, s, now, tasktype.WorkerMemory, live[0].Name, 236<<20, 300<<20, 515<<20)
	for path, wants := range map[string][]string{
		"/":           {`aria-label="Waiting tasks in the last hour: 0 to 1` + "\u202f" + `200; in the same hour yesterday: 0 to 5"`, `<path class="before"`},
		"/queues":     {`aria-label="Waiting tasks in the last hour: 0 to 1` + "\u202f" + `200"`},
		"/queues/gpu": {`Grows since <time datetime="` + now.Add(-2*time.Minute).UTC().Format("2006-01-02T15:04:00Z"), "when 0 tasks were waiting", `aria-label="Waiting tasks in the last day: 0 to 1` + "\u202f" + `200"`},
		"/workers":    {`: 236 MiB to 515 MiB"`, "<small>from 236 MiB, <time"},
	} {
		_, body := get(t, h, path)
		for _, want := range wants {
			if !strings.Contains(body, want) {
				t.Errorf("%s: got %.5000s, want %q in it", path, body[strings.Index(body, "<main"):], want)
			}
		}
	}
}
