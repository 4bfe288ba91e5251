package ui

import (
	"strings"
	"testing"
	"time"

	"muster/tasks"
	"muster/tasks/tasktype"
)

func TestOverviewHasTrouble(t *testing.T) {
	t.Parallel()
	f, h := fleet(t, Config{})
	lone := tasks.New[int, int]("u.lone", tasks.Queue("gpu"))
	sent(t, f, bad.S(1))
	sent(t, f, inc.S(1))
	sent(t, f, ask.S("refund?"))
	f.Drain()
	sent(t, f, lone.S(1))
	if err := f.Client().Redis().SAdd(t.Context(), "asynq:queues", "gpu").Err(); err != nil { // like asynq's client
		t.Fatal(err)
	}
	_, body := get(t, h, "/")
	for _, want := range []string{
		"Queue gpu</a></b>: no live workers; 1 task waiting, stalled for",
		"u.bad</a></b>: all of 1 task failed in the last hour; last error:",
		`<span>Waiting tasks</span><b>1</b>`,
		`<span>To do</span><b>1</b>`,
		`class="n">100 %</td>`,
		`Workflows <span class="count bad">1<span class="off"> failed</span></span></a>`,
		`To do <span class="count">1<span class="off"> open</span></span></a>`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("got %s, want %q in it", body, want)
		}
	}
	if strings.Contains(body, "<script>alert") || strings.Contains(body, "u.inc</a></b>") {
		t.Errorf("got %s, want escaped text and no trouble with u.inc", body)
	}
}

func TestQueues(t *testing.T) {
	t.Parallel()
	got := Queues([]tasktype.Queue{
		{Name: "busy", Pending: 3, Workers: 2, Latency: time.Hour},
		{Name: "idle"},
		{Name: "gpu/1", Pending: 1249, Latency: 4 * time.Minute},
		{Name: "mail", Pending: 1, Workers: 1, Paused: true},
		{Name: "video", Workers: 1, Unhandled: map[string]int64{"video.cut": 2, "video.blur": 1}},
	})
	want := []Trouble{
		{true, "Queue gpu/1", "no live workers; 1\u202f249 tasks waiting, stalled for 4 min 00 s", "/queues/gpu%2F1"},
		{false, "Queue mail", "paused; 1 task waiting", "/queues/mail"},
		{true, "Queue video", "no live worker has a handler for video.blur (1), video.cut (2)", "/queues/video"},
	}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
