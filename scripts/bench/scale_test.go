package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// startProcess runs a process of the scale run as a goroutine, and returns what asks it.
func startProcess(t *testing.T, name, url string) *member {
	t.Helper()
	in, requests := io.Pipe()
	replies, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := runScaleProcess(context.WithoutCancel(t.Context()), name, url, in, out)
		out.CloseWithError(err)
		ended <- err
	}()
	t.Cleanup(func() {
		requests.Close()
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
	return &member{in: requests, replies: json.NewDecoder(replies)}
}

// Each work is done by a worker as often as a sender sends it, with the right values, on a server and on a cluster.
func TestScaleWorks(t *testing.T) {
	t.Parallel()
	newLab(t) // skips where there is no Redis
	for _, nodes := range []int{1, 2} {
		f, err := openFarm(t.Context(), nodes)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(f.close)
		for _, work := range scaleWorks {
			t.Run(work, func(t *testing.T) {
				if err := f.empty(t.Context()); err != nil {
					t.Fatal(err)
				}
				req := request{Do: "work", Work: work, Per: perWorkflow(work), Queues: 2}
				c := &crew{sender: startProcess(t, "sender", f.url()), workers: []*member{startProcess(t, "worker", f.url())}}
				if _, err := c.workers[0].ask(req); err != nil {
					t.Fatal(err)
				}
				n := 6 * req.Per
				u, err := c.measure(t.Context(), f, func() error { return c.sendAndAwait(t.Context(), req, n) })
				if err != nil {
					t.Fatal(err)
				}
				if u.redis.cpu <= 0 || u.redis.scripts < 2 || u.redis.commands < u.redis.scripts || u.redis.traffic <= 0 || u.worker <= 0 || u.sender <= 0 {
					t.Errorf("got %+v, want more than 0 of each", u)
				}
				if got := u.redis.busiest(); got < 1/float64(nodes) || got > 1 {
					t.Errorf("got a share of the busiest node of %v, want 1/%d to 1", got, nodes)
				}
				if _, err := c.sender.ask(request{Do: "check"}); err != nil {
					t.Error(err)
				}
				if got, err := c.usage(); err != nil || got.Done != int64(n) || got.Peak < 1<<20 {
					t.Errorf("got %+v, %v; want %d done and a peak of some megabytes", got, err, n)
				}
			})
		}
	}
}

// A run does not pass with a wrong value, or with an unknown work.
func TestScaleProcessFails(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	p := startProcess(t, "sender", l.url())
	if _, err := p.ask(request{Do: "send", Work: "nothing", N: 1, Per: 1}); err == nil || !strings.Contains(err.Error(), `unknown work "nothing"`) {
		t.Errorf("got error %v, want that the work is unknown", err)
	}

	f, err := startFleet(t.Context(), l, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer f.stop()
	wrong := &scaleProcess{client: f.client}
	if err := sendChecked(t.Context(), wrong, benchStep.S(1), func(got int) bool { return got == 2 }); err != nil {
		t.Fatal(err)
	}
	if err := wrong.answer(t.Context(), request{Do: "check"}); err == nil || !strings.Contains(err.Error(), "wrong value") {
		t.Errorf("got error %v, want that a value is wrong", err)
	}
}

// A size for which Redis has no room is named and not measured.
func TestScaleLeavesOutWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	rep := &scaleReport{}
	// The size before is known, so that no process is needed.
	p := plan{items: []int{1000}, memory: 500}
	if err := rep.addSeries(t.Context(), &farm{nodes: []*lab{l}}, p, workItems, 1.0, io.Discard); err != nil {
		t.Fatal(err)
	}
	if len(rep.Sizes) != 0 || len(rep.NotRun) != 1 || rep.NotRun[0] != (notRun{workItems, 1000, 1000}) {
		t.Errorf("got %+v and %+v, want that 1,000 items are left out, which need 1,000 bytes", rep.Sizes, rep.NotRun)
	}
}

// The page has all blocks, each once, and a run changes nothing else.
func TestCapacityPageHasBlocks(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/concepts/capacity.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := (&scaleReport{}).blocks()
	if got := slices.Sorted(maps.Keys(blocks)); !slices.Equal(got, slices.Sorted(slices.Values(blockOrder))) {
		t.Errorf("the blocks are %v, and %v are printed", got, blockOrder)
	}
	for name := range blocks {
		blocks[name] = "|" + name + "|\n"
	}
	out, err := fillBlocks(string(page), blocks)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range blocks {
		if n := strings.Count(out, "\n"+text); n != 1 {
			t.Errorf("the block %s is there %d times, want once", name, n)
		}
	}
	if again, err := fillBlocks(out, blocks); err != nil || again != out {
		t.Errorf("the second write changes the page, or fails: %v", err)
	}
	if _, err := fillBlocks("a page\n", blocks); err == nil {
		t.Error("a page without blocks: got no error, want one")
	}
}

// pacedReport has the work of the examples that needs most of Redis, on one to three nodes.
func pacedReport() *scaleReport {
	return &scaleReport{
		Cells: []cell{
			{Work: workPaced, Workers: 1, Nodes: 1, Redis: 100, Worker: 400, Bytes: 200, Busiest: 1},
			{Work: workPaced, Workers: 8, Nodes: 1, Redis: 400, Worker: 300, Bytes: 250, Busiest: 1},
			{Work: workPaced, Workers: 8, Nodes: 2, Redis: 700, Worker: 900, Bytes: 900, Busiest: 0.8},
			{Work: workPaced, Workers: 8, Nodes: 3, Redis: 600, Worker: 900, Bytes: 900, Busiest: 0.5},
		},
		Idle: []idleCell{{Workers: 8, Nodes: 1, Redis: 16_000}, {Workers: 1, Nodes: 2, Redis: 3000}, {Workers: 1, Nodes: 3, Redis: 4000}},
	}
}

// The model takes the largest cost on so many nodes as are needed, fills half a core of the busiest, and counts workers
// that wait.
func TestExamplesFollowFromCosts(t *testing.T) {
	t.Parallel()
	rep := pacedReport()
	got := rep.exampleTable()
	for _, want := range []string{
		// 1,066 × 400 µs + 50 × 2,000 µs = 0.53 cores of one; of two the busiest has (1,066 × 700 µs + 50 × 3,000 µs) × 0.8 = 0.72;
		// of three (1,066 × 600 µs + 50 × 4,000 µs) × 0.5 = 0.42. 1,066 × 400 µs / 0.7 = 0.61 cores of workers.
		"| tasks of 1 s that keep 50 machines with 32 slots busy | 1,066 | 0.53 | 3 | 0.42 | 1,600 | 50 | 0.61 | 959 MB |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant in it\n%s", got, want)
		}
	}
	if got, want := rep.costTable(), "| single task, 200 a second | 400 | 400 | 0 | 0 | 0 | 0 | 250 | 1,200 |"; !strings.Contains(got, want) {
		t.Errorf("got\n%s\nwant in it\n%s", got, want)
	}

	rep.Cells = rep.Cells[:3]
	if got, want := rep.exampleTable(), "| 1,066 | 0.53 | more than 2 | 0.72 |"; !strings.Contains(got, want) {
		t.Errorf("where no number of nodes suffices: got\n%s\nwant in it\n%s", got, want)
	}
}

// The table says what a Cluster gains: three nodes, at 600 µs and half of it on the busiest, do 400 / (600 × 0.5) times the
// work of one.
func TestGrowthSaysWhatAClusterGains(t *testing.T) {
	t.Parallel()
	got := pacedReport().growthTable()
	for _, want := range []string{
		"| one | nodes of Redis | 1 worker | 8 workers | busiest node | times one server |",
		"| single task, 200 a second | 1 | 100 + 400 | 400 + 300 | 100 % | 1.0 |",
		"| single task, 200 a second | 3 |  | 600 + 900 | 50 % | 1.3 |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant in it\n%s", got, want)
		}
	}
}

// A run of some works only, measured or read, leaves the page as it is.
func TestPageIsNotWrittenWithMissingRows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	page, saved := filepath.Join(dir, "page.md"), filepath.Join(dir, "run.json")
	before := "<!-- scale: run -->\n<!-- end -->\n"
	raw, err := json.Marshal(pacedReport())
	if err := errors.Join(err, os.WriteFile(page, []byte(before), 0o600), os.WriteFile(saved, raw, 0o600)); err != nil {
		t.Fatal(err)
	}
	only := run(t.Context(), []string{"-scale", "-scale-only", "single", "-scale-write", page}, io.Discard, io.Discard)
	if !errors.Is(only, errUsage) || !strings.Contains(only.Error(), "-scale-only") {
		t.Errorf("-scale-only with -scale-write: got %v, want that it is wrong usage", only)
	}
	read := run(t.Context(), []string{"-scale", "-scale-read", saved, "-scale-write", page}, io.Discard, io.Discard)
	if read == nil || !strings.Contains(read.Error(), "no single, chain, group, chord, item, page, sizes") {
		t.Errorf("a run of one work: got %v, want the others", read)
	}
	if after, err := os.ReadFile(page); err != nil || string(after) != before {
		t.Errorf("got the page %q, %v; want %q", after, err, before)
	}
}

func TestScaleNumbers(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{0: "0", 0.0456: "0.046", 0.5: "0.50", 1.04: "1.0", 9.9: "9.9", 27.4: "27", 1234567: "1,234,567", 285: "285"} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %s, want %s", v, got, want)
		}
	}
}
