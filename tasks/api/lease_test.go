package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/api"
	"muster/tasks/tasktype"
)

// language is a worker: the code after a fence of a page, or a file.
type language struct {
	queue, program, fence, page, file string
	changes                           []string
}

var languages = []language{
	{"python", "python3", "```python\n", "../../docs/how-to/other-languages.md", "worker.py", []string{"LEASE = 30", "LEASE = 3",
		"len(text.split())", `(time.sleep(5 if text == "slow" else 0.01), len(text.split()))[1]`}},
	{"node", "node", "", "../../examples/workers/worker.mjs", "worker.mjs", []string{"lease = 30", "lease = 3",
		`text.split(/\s+/).length`, `(await sleep(text === "slow" ? 5 : 0.01), text.split(/\s+/).length)`}},
}

// source returns the program of the page, with short leases and slow tasks.
func (l *language) source(t *testing.T) string {
	page := testutil.Must(os.ReadFile(l.page))(t)
	_, rest, _ := strings.Cut(string(page), l.fence)
	text, _, _ := strings.Cut(rest, "\n```\n")
	if n := strings.Count(text, "\n") + 1; n < 10 || n > 60 {
		t.Errorf("the worker of %s has %d lines, want up to 60", l.queue, n)
	}
	for i := 0; i < len(l.changes); i += 2 {
		if strings.Count(text, l.changes[i]) != 1 {
			t.Fatalf("the worker of %s does not have %q once", l.queue, l.changes[i])
		}
		text = strings.Replace(text, l.changes[i], l.changes[i+1], 1)
	}
	return text
}

// park is two processes of the API behind a balancer, and the workers that use it.
type park struct {
	served
	mu        sync.Mutex // guards the fields below
	calls     int
	workflows map[string]string // by token
	leased    map[string]int    // leases by workflow and attempt
	completed map[string]int    // accepted results by workflow
}

func newPark(t *testing.T) *park {
	t.Helper()
	rdb := redistest.New(t)
	p := &park{workflows: map[string]string{}, leased: map[string]int{}, completed: map[string]int{}}
	var processes [2]http.Handler
	for i := range processes {
		p.client = tasks.NewClient(rdb)
		t.Cleanup(func() { _ = p.client.Close() })
		processes[i] = testutil.Must(api.Handler(api.Config{Client: p.client}))(t)
	}
	server := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		p.mu.Lock()
		p.calls++
		process := processes[p.calls%2]
		p.mu.Unlock()
		out := httptest.NewRecorder()
		process.ServeHTTP(out, r)
		p.note(r.URL.Path, body, out)
		w.Header().Set("Content-Type", out.Header().Get("Content-Type"))
		w.Header().Set("Location", out.Header().Get("Location"))
		w.WriteHeader(out.Code)
		_, _ = w.Write(out.Body.Bytes())
	}))
	p.t, p.url = t, server.URL
	return p
}

// note counts leases and accepted results.
func (p *park) note(path string, body []byte, out *httptest.ResponseRecorder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case path == "/v1/tasks/lease" && out.Code == http.StatusOK:
		var leases api.LeasedTasks
		_ = json.Unmarshal(out.Body.Bytes(), &leases)
		for _, l := range leases.Tasks {
			p.workflows[l.Token] = l.Workflow
			p.leased[fmt.Sprint(l.Workflow, " ", l.Attempt)]++
		}
	case path == "/v1/tasks/complete" && out.Code == http.StatusNoContent:
		var done api.TokenResult
		_ = json.Unmarshal(body, &done)
		p.completed[p.workflows[done.Token]]++
	}
}

func (p *park) done() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.completed)
}

// start starts a worker.
func (p *park) start(l *language) (worker *exec.Cmd, output *testutil.Output) {
	p.t.Helper()
	path, err := exec.LookPath(l.program)
	if err != nil {
		p.t.Skipf("NOT COVERED: no %s to run the worker of the documentation (%v)", l.program, err)
	}
	file := filepath.Join(p.t.TempDir(), l.file)
	testutil.Ok(p.t, os.WriteFile(file, []byte(l.source(p.t)), 0o600))
	cmd := exec.Command(path, file)
	output = &testutil.Output{}
	cmd.Stdout, cmd.Stderr, cmd.Env = output, output, append(os.Environ(), "MUSTER_API="+p.url, "NO_PROXY=*")
	testutil.Ok(p.t, cmd.Start())
	p.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, output
}

func TestWorkersInOtherLanguages(t *testing.T) {
	t.Parallel()
	for _, l := range languages {
		t.Run(l.queue, func(t *testing.T) {
			t.Parallel()
			p := newPark(t)
			worker, output := p.start(&l)
			send := func(input string) string {
				return p.send(fmt.Sprintf(`{"task": "text.count", "queue": %q, "input": %s}`, l.queue, input))
			}
			slow, wrong, plain := send(`"slow"`), send(`5`), send(`"it was dark"`)
			for id, want := range map[string]string{slow: "1", plain: "3"} { // without a retry: the lease of slow is extended
				if r := p.result(id); string(r.Result) != want {
					t.Errorf("got %+v, want the result %s\n%s", r, want, output)
				}
			}
			if r := p.result(wrong); r.Failure == nil || !strings.Contains(r.Failure.Message, "split") {
				t.Errorf("got %+v, want the error of the program\n%s", r, output)
			}
			testutil.Ok(t, worker.Process.Signal(syscall.SIGTERM))
			if err := worker.Wait(); err != nil {
				t.Errorf("after SIGTERM: %v\n%s", err, output)
			}
		})
	}
}

// TestLeasedTasksAreCompletedOnce kills workers while they run tasks. With MUSTER_LEASE_BAR=1 it has 5,000 tasks, six workers and 30 kills.
func TestLeasedTasksAreCompletedOnce(t *testing.T) {
	t.Parallel()
	count, size, kills := 300, 3, 5
	if os.Getenv("MUSTER_LEASE_BAR") != "" {
		count, size, kills = 5000, 6, 30
	}
	p := newPark(t)
	workers := make([]*exec.Cmd, size)
	for i := range workers {
		workers[i], _ = p.start(&languages[0])
	}
	counting := tasks.New[string, int]("text.count", tasks.Queue("python"), tasks.MaxRetry(50), tasks.ConstantBackoff(0))
	sends := make([]tasks.Sending, count)
	for i := range sends {
		sends[i].Work = counting.S(strings.Repeat("word ", i%7))
	}
	began := time.Now()
	sent := testutil.Must(p.client.SendMany(t.Context(), sends))(t)
	for i := range kills {
		testutil.Eventually(t, "tasks are completed", func() bool { return p.done() > i*count/(kills+1) })
		testutil.Ok(t, workers[i%size].Process.Kill())
		workers[i%size], _ = p.start(&languages[0])
	}
	for i, s := range sent {
		if r := p.result(s.ID); string(r.Result) != fmt.Sprint(i%7) {
			t.Fatalf("task %d: got %+v, want %d", i, r, i%7)
		}
	}
	t.Logf("%d tasks in %s, %d leases", count, time.Since(began), len(p.leased))
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, n := range p.completed {
		if n != 1 {
			t.Errorf("workflow %s was completed %d times", id, n)
		}
	}
	for attempt, n := range p.leased {
		if n != 1 {
			t.Errorf("attempt %s was leased %d times", attempt, n)
		}
	}
}

func (s *served) lease(body string) []tasktype.LeasedTask {
	s.t.Helper()
	var out api.LeasedTasks
	s.call(http.MethodPost, "/v1/tasks/lease", body, http.StatusOK, &out)
	return out.Tasks
}

func TestLeaseOfALostWorkerExpires(t *testing.T) {
	t.Parallel()
	s := serve(t)
	id := s.send(`{"task": "py.double", "queue": "py", "input": 21, "max_retry": 1, "headers": {"trace": "t1"}}`)
	const lease = `{"tasks": ["py.double"], "queue": "py", "lease": "1s"}`
	first := s.lease(lease)[0]
	if first.Workflow != id || first.Attempt != 1 || string(first.Input) != "21" || first.Headers["trace"] != "t1" {
		t.Errorf("got %+v, want the first attempt at the task", first)
	}
	second := s.lease(strings.Replace(lease, "1s", "5s", 1))[0]
	if second.Attempt != 2 || second.Token == first.Token || second.Key != first.Key {
		t.Errorf("got %+v after %+v, want another attempt", second, first)
	}
	for _, call := range []string{"beat", "complete", "fail"} {
		s.wantProblem(http.MethodPost, "/v1/tasks/"+call, fmt.Sprintf(`{"token": %q%s}`, first.Token, map[string]string{"complete": `, "result": 1`, "fail": `, "message": "m"`}[call]),
			http.StatusConflict, "stale_token")
	}
	if r := s.result(id); r.Failure == nil || r.Failure.Code != tasktype.CodeTimeout || r.Failure.Attempts != 2 {
		t.Errorf("got %+v after the last attempt, want a timeout", r)
	}
	s.wantProblem(http.MethodPost, "/v1/tasks/complete", fmt.Sprintf(`{"token": %q, "result": 1}`, second.Token), http.StatusConflict, "task_completed")
}

func TestLeaseIsExtendedUntilTheTimeout(t *testing.T) {
	t.Parallel()
	s := serve(t)
	id := s.send(`{"task": "py.double", "queue": "py", "input": 21, "timeout": "4s"}`)
	l := s.lease(`{"tasks": ["py.double"], "queue": "py", "lease": "3s"}`)[0]
	beats := 0
	testutil.Eventually(t, "the lease has ended", func() bool {
		res, err := http.Post(s.url+"/v1/tasks/beat", "application/json", strings.NewReader(fmt.Sprintf(`{"token": %q, "lease": "1h"}`, l.Token)))
		testutil.Ok(t, err)
		testutil.Ok(t, res.Body.Close())
		if res.StatusCode != http.StatusConflict {
			beats++
		}
		return res.StatusCode == http.StatusConflict
	})
	if r := s.result(id); r.Failure == nil || r.Failure.Code != tasktype.CodeTimeout || beats == 0 {
		t.Errorf("got %+v after %d beats, want a timeout", r, beats)
	}
}

func TestSeveralTasksAreLeasedAtOnce(t *testing.T) {
	t.Parallel()
	s := serve(t)
	group := tasks.New[int, int]("py.double", tasks.Queue("py"), tasks.MaxRetry(1), tasks.ConstantBackoff(0))
	run, err := tasks.Chord(tasks.Each([]int{1, 2, 3, 4, 5}, group), tasks.New[[]int, int]("py.sum", tasks.Queue("py"))).Send(t.Context(), s.client)
	testutil.Ok(t, err)
	failed := false
	for left := 5; left > 0; {
		for _, l := range s.lease(`{"tasks": ["py.sum", "py.double"], "queue": "py", "max": 3}`) {
			if !failed {
				failed = true
				s.call(http.MethodPost, "/v1/tasks/fail", fmt.Sprintf(`{"token": %q, "message": "not yet"}`, l.Token), http.StatusNoContent, nil)
				continue
			}
			left--
			s.call(http.MethodPost, "/v1/tasks/complete", fmt.Sprintf(`{"token": %q, "result": %s0}`, l.Token, l.Input), http.StatusNoContent, nil)
		}
	}
	sum := s.lease(`{"tasks": ["py.double", "py.sum"], "queue": "py", "max": 3}`)
	if len(sum) != 1 || string(sum[0].Input) != "[10,20,30,40,50]" {
		t.Fatalf("got %+v, want the results of the group", sum)
	}
	s.call(http.MethodPost, "/v1/workflows/"+run.ID()+"/cancel", "", http.StatusNoContent, nil)
	s.wantProblem(http.MethodPost, "/v1/tasks/beat", `{"token": "x"}`, http.StatusNotFound, "workflow_not_found")
	s.wantProblem(http.MethodPost, "/v1/tasks/beat", fmt.Sprintf(`{"token": %q}`, sum[0].Token), http.StatusConflict, "task_completed")
}

func TestLeasesThatNobodyWaitsForReturn(t *testing.T) {
	t.Parallel()
	s := serve(t)
	const lease = `{"tasks": ["py.double"], "queue": "py"%s}`
	if got := s.lease(fmt.Sprintf(lease, `, "wait": "0s"`)); len(got) != 0 {
		t.Errorf("got %+v of an empty queue", got)
	}
	s.call(http.MethodPost, "/v1/workers/concurrency", `{"concurrency": 50}`, http.StatusNoContent, nil) // does not count for leases
	var ids []string
	for range 20 {
		ids = append(ids, s.send(`{"task": "py.double", "queue": "py", "input": 21}`))
	}
	var leased []string
	for len(leased) < 20 {
		for _, l := range s.lease(fmt.Sprintf(lease, "")) {
			if l.Attempt != 1 {
				t.Errorf("got %+v, want the first attempt", l)
			}
			leased = append(leased, l.Workflow)
		}
	}
	slices.Sort(ids)
	if slices.Sort(leased); !slices.Equal(leased, ids) {
		t.Errorf("leased %v, want each of %v once", leased, ids)
	}
}
