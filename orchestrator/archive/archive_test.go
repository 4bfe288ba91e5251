package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/tasktype"
)

func TestMain(m *testing.M) { redistest.Main(m, func() error { return goleak.Find() }) }

var work = tasks.New[string, string]("work")

// serve runs a worker whose handler fails for the input "bad" and returns large values for "large".
func serve(t *testing.T, client *tasks.Client) {
	t.Helper()
	mux := tasks.NewMux()
	tasks.Handle(mux, work, func(ctx context.Context, in string) (string, error) {
		switch in {
		case "bad":
			return "", tasks.Permanent(errors.New("no money"))
		case "large":
			return strings.Repeat("x", maxValue), nil
		}
		return tasks.Step(ctx, "charge", func(context.Context) (string, error) { return in + "!", nil })
	})
	worker := testutil.Must(tasks.NewWorker(client, mux, tasks.WorkerConfig{Concurrency: 32}))(t)
	testutil.Background(t, worker.Run)
}

func newClient(t *testing.T) *tasks.Client {
	t.Helper()
	client := tasks.NewClient(redistest.New(t))
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// ids returns the IDs of all pages of a list.
func ids(t *testing.T, a *Archive, f tasktype.WorkflowFilter) (all []string) {
	t.Helper()
	for {
		page, next, err := a.List(t.Context(), f)
		testutil.Ok(t, err)
		for _, w := range page {
			all = append(all, w.ID)
		}
		if f.Cursor = next; next == "" {
			return all
		}
	}
}

// Each kind of archive has each workflow with its nodes and finds it by every filter, after it was retried too.
func TestArchive(t *testing.T) {
	t.Parallel()
	for kind, address := range map[string]func(testing.TB) string{
		"sqlite":   func(t testing.TB) string { return "sqlite:" + filepath.Join(t.TempDir(), "sub", "a.db") },
		"postgres": testutil.Postgres,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			client := newClient(t)
			serve(t, client)
			send := func(id, in string, opts ...tasks.SendOption) {
				run := testutil.Must(work.S(in).Send(t.Context(), client, append(opts, tasks.ID(id))...))(t)
				testutil.Ok(t, run.WaitAll(t.Context()))
				redistest.NextMillisecond(t, client.Redis()) // the order of the ends
			}
			send("before", "a") // an archive begins with the oldest
			a := New(Config{Client: client, Address: address(t)})
			testutil.Ok(t, Check(a.cfg.Address))
			t.Cleanup(func() { testutil.Ok(t, a.Close()) })
			testutil.Eventually(t, "the sink is available", func() bool { _, _, err := a.List(t.Context(), tasktype.WorkflowFilter{}); return err == nil })
			testutil.Background(t, a.Run)
			send("bad", "bad", tasks.Name("billing"), tasks.Labels(map[string]string{"team": "x", "a": "%_'"}))
			send("large", "large")
			testutil.Ok(t, client.Workflow("bad").Retry(t.Context(), work.RetryInput("0", "good")))
			testutil.Ok(t, client.Workflow("bad").WaitAll(t.Context()))
			all := []string{"bad", "large", "before"}
			testutil.Eventually(t, "all workflows", func() bool { return slices.Equal(ids(t, a, tasktype.WorkflowFilter{State: "success"}), all) })
			page, _, err := a.List(t.Context(), tasktype.WorkflowFilter{})
			testutil.Ok(t, err)
			for name, c := range map[string]struct {
				f    tasktype.WorkflowFilter
				want []string
			}{
				"pages":    {tasktype.WorkflowFilter{Limit: 1}, all},
				"state":    {tasktype.WorkflowFilter{State: "failure"}, nil},
				"task":     {tasktype.WorkflowFilter{Name: "work"}, all},
				"name":     {tasktype.WorkflowFilter{Name: "billing"}, all[:1]},
				"contains": {tasktype.WorkflowFilter{Contains: "LLIN"}, all[:1]},
				"labels":   {tasktype.WorkflowFilter{Labels: map[string]string{"team": "x", "a": "%_'"}}, all[:1]},
				"label":    {tasktype.WorkflowFilter{Labels: map[string]string{"team": "X"}}, nil},
				"origin":   {tasktype.WorkflowFilter{Origin: "x"}, nil},
				"after":    {tasktype.WorkflowFilter{After: page[1].EndedAt}, all[:2]},
				"before":   {tasktype.WorkflowFilter{Before: page[1].EndedAt}, all[2:]},
			} {
				if got := ids(t, a, c.f); !slices.Equal(got, c.want) {
					t.Errorf("%s: got %v, want %v", name, got, c.want)
				}
			}
			d := testutil.Must(a.Get(t.Context(), "bad"))(t)
			if n := d.Nodes; len(n) != 1 || string(n[0].Result) != `"good!"` || len(n[0].Steps) != 1 || n[0].Ended.IsZero() || d.Labels["team"] != "x" || d.Tasks != "work" {
				t.Errorf("got %+v", d)
			}
			if d := testutil.Must(a.Get(t.Context(), "large"))(t); d.Omitted != 1 || d.Nodes[0].Result != nil || string(d.Nodes[0].Input) != `"large"` {
				t.Errorf("a large value: got %+v", d)
			}
			if _, err := a.Get(t.Context(), "none"); !errors.Is(err, ErrNoWorkflow) {
				t.Errorf("no workflow: got %v", err)
			}
			if _, _, err := a.List(t.Context(), tasktype.WorkflowFilter{Cursor: "x"}); !errors.Is(err, tasks.ErrCursor) {
				t.Errorf("an invalid cursor: got %v", err)
			}
		})
	}
}

// While the sink is away, events wait and the health says so. Workflows that expired meanwhile are archived without nodes, and the
// archive says how many were dropped.
func TestArchiveThatIsAway(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	rdb := client.Redis()
	dir := t.TempDir()
	blocked := filepath.Join(dir, "sub")
	testutil.Ok(t, os.WriteFile(blocked, nil, 0o600))
	a := New(Config{Client: client, Address: "sqlite:sub/a.db", Dir: dir})
	t.Cleanup(func() { testutil.Ok(t, a.Close()) })
	testutil.Background(t, a.Run)
	testutil.Eventually(t, "a failure", func() bool {
		_, err := a.Health(t.Context())
		return err != nil && strings.Contains(err.Error(), "wait for the archive since 20")
	})
	run := testutil.Must(work.S("a").Send(t.Context(), client, tasks.ID("gone")))(t)
	testutil.Ok(t, run.Revoke(t.Context()))
	testutil.Ok(t, run.Delete(t.Context()))
	testutil.Ok(t, rdb.HSet(t.Context(), "muster:{0}:cut", "S", time.Now().UnixMilli()).Err())
	testutil.Ok(t, rdb.HSet(t.Context(), "muster:{0}:readers", "!archive", 17).Err())
	if _, err := a.Get(t.Context(), "gone"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("get from a sink that is away: got %v", err)
	}
	testutil.Ok(t, os.Remove(blocked))
	testutil.Eventually(t, "recovery", func() bool {
		text, err := a.Health(t.Context())
		return err == nil && strings.HasPrefix(text, "about 17 workflows are missing")
	})
	if d, err := a.Get(t.Context(), "gone"); err != nil || !d.Expired || d.State != "revoked" {
		t.Errorf("got %+v, %v", d, err)
	}
}

func TestAddressesOfArchives(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{"jsonl:a": true, "sqlite:a.db": true, "postgres://me@db.example/app": true, "jsonl:": false, "https://x.example": false, "a.db": false, "postgres://me:pw@db/app": false} {
		if err := Check(address); (err == nil) != want {
			t.Errorf("%s: got %v", address, err)
		}
	}
	for _, address := range []string{"", "jsonl:a"} {
		if _, _, err := New(Config{Address: address}).List(t.Context(), tasktype.WorkflowFilter{}); !errors.Is(err, ErrNone) {
			t.Errorf("no archive in a database: got %v", err)
		}
	}
}

// TestArchiverProcess is the process that TestArchiveSurvivesKills kills.
func TestArchiverProcess(t *testing.T) {
	url, address, ok := strings.Cut(os.Getenv("MUSTER_ARCHIVER"), " ")
	if !ok {
		t.Skip("it is run by TestArchiveSurvivesKills")
	}
	client := testutil.Must(tasks.Connect(t.Context(), url))(t)
	testutil.Ok(t, New(Config{Client: client, Address: address}).Run(t.Context()))
}

// An archive whose process is killed again and again has each workflow once. MUSTER_TEST_ARCHIVE is "<workflows> <kills>".
func TestArchiveSurvivesKills(t *testing.T) {
	t.Parallel()
	for kind, address := range map[string]string{"sqlite": "sqlite:" + filepath.Join(t.TempDir(), "a.db"), "jsonl": "jsonl:" + filepath.Join(t.TempDir(), "a.jsonl")} {
		t.Run(kind, func(t *testing.T) {
			n, kills := 600, 3
			_, _ = fmt.Sscan(os.Getenv("MUSTER_TEST_ARCHIVE"), &n, &kills)
			server := redistest.Server(t)
			client := tasks.NewClient(server.Client())
			t.Cleanup(func() { _ = client.Close() })
			serve(t, client)
			a := New(Config{Client: client, Address: address})
			t.Cleanup(func() { _ = a.Close() })
			count := func() (rows, different int) {
				path, lines := strings.CutPrefix(address, "jsonl:")
				if !lines {
					d := testutil.Must(a.reader(t.Context()))(t)
					testutil.Ok(t, d.QueryRowContext(t.Context(), "SELECT COUNT(*), COUNT(DISTINCT id) FROM muster_workflows").Scan(&rows, &different))
					return rows, different
				}
				seen := map[string]bool{}
				text, _ := os.ReadFile(path) // of no workflow yet
				for raw := range bytes.Lines(text) {
					var l line
					if json.Unmarshal(raw, &l) == nil { // not the line that is being written
						seen[l.ID] = true
						rows++
					}
				}
				return rows, len(seen)
			}
			start := func() *exec.Cmd {
				testutil.Ok(t, client.Redis().Del(t.Context(), turnKey).Err()) // the turn of a killed process ends after half a minute
				cmd := exec.Command(os.Args[0], "-test.run=^TestArchiverProcess$")
				cmd.Env = append(os.Environ(), "MUSTER_ARCHIVER="+server.URL()+" "+address)
				testutil.Ok(t, cmd.Start())
				return cmd
			}
			kill := func(cmd *exec.Cmd) {
				testutil.Ok(t, cmd.Process.Kill())
				_ = cmd.Wait()
			}
			cmd := start()
			began := time.Now()
			sends := make([]tasks.Sending, n)
			for i := range sends {
				sends[i] = tasks.Sending{Work: work.S("a")}
			}
			for part := range slices.Chunk(sends, 1000) {
				testutil.Must(client.SendMany(t.Context(), part))(t)
			}
			for i := range kills {
				testutil.Eventually(t, "more are archived", func() bool { rows, _ := count(); return rows >= (i+1)*n/(kills+1) })
				kill(cmd)
				cmd = start()
			}
			rows, different := 0, 0
			testutil.Eventually(t, "all are archived", func() bool { rows, different = count(); return rows != different || rows == n })
			kill(cmd)
			t.Logf("%d of %d workflows in %s with %d kills", rows, n, time.Since(began).Round(time.Millisecond), kills)
			if text, err := a.Health(t.Context()); rows != n || different != n || err != nil || text != "up to date" {
				t.Errorf("got %d workflows with %d IDs, %s, %v, want %d", rows, different, text, err, n)
			}
		})
	}
}
