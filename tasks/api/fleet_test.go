package api_test

import (
	"net/http"
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/api"
	"muster/tasks/tasktype"
)

// pageOf is the body of a list.
type pageOf[T any] struct{ Data []T }

func TestWorkersAndQueuesAreListedAndControlled(t *testing.T) {
	t.Parallel()
	s := serve(t)
	var workers pageOf[api.Worker]
	s.call(http.MethodGet, "/v1/workers?ping=30s", "", http.StatusOK, &workers)
	if len(workers.Data) != 1 || workers.Data[0].Replied == nil || !*workers.Data[0].Replied || workers.Data[0].Started.IsZero() {
		t.Fatalf("got %+v, want one worker that replied", workers.Data)
	}
	name := workers.Data[0].Name
	s.call(http.MethodPost, "/v1/workers/concurrency", `{"concurrency": 3, "worker": "`+name+`"}`, http.StatusNoContent, nil)
	testutil.Eventually(t, "the worker runs 3 tasks at once", func() bool {
		s.call(http.MethodGet, "/v1/workers", "", http.StatusOK, &workers)
		return workers.Data[0].Concurrency == 3
	})
	s.wantProblem(http.MethodPost, "/v1/workers/concurrency", `{"concurrency": 3, "worker": "odd"}`, http.StatusNotFound, "worker_not_found")

	var queue api.TaskQueue
	s.call(http.MethodPost, "/v1/task-queues/default/pause", "", http.StatusOK, &queue)
	if !queue.Paused || queue.Workers != 1 {
		t.Errorf("got %+v, want a paused queue with a worker", queue)
	}
	s.call(http.MethodPost, "/v1/task-queues/odd/resume", "", http.StatusOK, &queue)
	if queue.Paused || queue.Workers != 0 {
		t.Errorf("got %+v, want a queue without workers", queue)
	}
	var queues pageOf[tasktype.Queue]
	s.call(http.MethodGet, "/v1/task-queues", "", http.StatusOK, &queues)
	if len(queues.Data) == 0 || !queues.Data[0].Paused {
		t.Errorf("got %+v, want the queue paused", queues.Data)
	}
}

func TestTasksAreListedByState(t *testing.T) {
	t.Parallel()
	s := serve(t)
	list := func(state string) []api.Task {
		var page pageOf[api.Task]
		s.call(http.MethodGet, "/v1/tasks?state="+state, "", http.StatusOK, &page)
		return page.Data
	}
	slow := s.send(`{"task": "text.slow", "input": 1}`)
	testutil.Eventually(t, "the task runs", func() bool { return len(list("running")) == 1 })
	if at := list("running")[0]; at.Workflow != slow || at.Worker == "" || at.StartedAt.IsZero() || at.Status != tasktype.Started {
		t.Errorf("got %+v", at)
	}
	close(s.release)
	s.result(slow)
	later := s.send(`{"task": "text.count", "input": "a", "delay": "1h"}`)
	if got := list("scheduled"); len(got) != 1 || got[0].Workflow != later || got[0].DueAt.IsZero() {
		t.Errorf("scheduled: got %+v", got)
	}
	elsewhere := s.send(`{"task": "text.count", "input": "a", "queue": "elsewhere"}`)
	if got := list("ready"); len(got) != 1 || got[0].Workflow != elsewhere || got[0].Queue != "elsewhere" {
		t.Errorf("ready: got %+v", got)
	}
	testutil.Eventually(t, "the outcome is counted", func() bool {
		var page pageOf[tasktype.RatePoint]
		s.call(http.MethodGet, "/v1/task-rates?task=text.slow&step=hour", "", http.StatusOK, &page)
		return len(page.Data) == 1 && page.Data[0].Succeeded == 1
	})
	for _, name := range []string{"review.one", "review.two"} {
		if _, err := tasks.New[string, string](name, tasks.External()).S("x").Send(t.Context(), s.client); err != nil {
			t.Fatal(err)
		}
	}
	testutil.Eventually(t, "the open nodes of all tasks are listed", func() bool {
		var page pageOf[api.OpenTask]
		s.call(http.MethodGet, "/v1/open-tasks", "", http.StatusOK, &page)
		var names []string
		for _, o := range page.Data {
			names = append(names, o.Task)
		}
		return strings.Join(names, " ") == "review.one review.two"
	})
}
