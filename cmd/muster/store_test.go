package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/tasks"
)

// Every command that connects refuses the store of a newer release, and says what to do; only muster store looks at it.
func TestNewerStoreIsRefused(t *testing.T) {
	t.Parallel()
	c := newCommand(t)
	c.run("jobs", "list")
	client, err := tasks.Connect(t.Context(), c.redis)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	if err := client.Redis().HSet(t.Context(), "muster:schema", "version", 99).Err(); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{
		"start --once", "worker", "jobs list", "inspect workflows", "queue stats", "agents list", "store migrate", "store export", "store check",
	} {
		cmd, out := c.start(strings.Fields(args)...)
		const want = "the store in Redis has schema 99, written by a newer release; this one knows 1: upgrade this program"
		if err := cmd.Wait(); err == nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: got %v, %s, want %s", args, err, out, want)
		}
	}
	if _, out := c.start("store", "check"); !testutil.Becomes(func() bool { return strings.Contains(out.String(), "Schema: 99; this program knows 1") }) {
		t.Errorf("store check: got %s, want the schema of both", out)
	}
}

// A damaged store is reported with exit code 1, and repaired when that is asked for.
func TestDamagedStoreIsRepaired(t *testing.T) {
	t.Parallel()
	c := newCommand(t)
	c.run("store", "seed", c.write("seed.jsonl", `{"kind":"muster-export","format":1}`+"\n"+`{"kind":"request","id":"one","prompt":"x","at":"2999-01-01T00:00:00Z"}`))
	client, err := tasks.Connect(t.Context(), c.redis)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	if err := client.Redis().ZRem(t.Context(), "muster:{jobs}:kind:pipeline", "one").Err(); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"store check", "store check --json"} {
		cmd, out := c.start(strings.Fields(args)...)
		err := cmd.Wait()
		for _, want := range []string{"is missing in muster:{jobs}:kind:pipeline", "muster store check --repair"} {
			if err == nil || cmd.ProcessState.ExitCode() != 1 || !strings.Contains(out.String(), want) {
				t.Errorf("%s: got %v, %s, want exit code 1 and %q", args, err, out, want)
			}
		}
	}
	if said := c.run("store", "check", "--repair"); !strings.Contains(said, "repaired: job one: is missing in") || !strings.Contains(said, ": 1 repaired") {
		t.Errorf("repair: got %s, want that it is repaired", said)
	}
	if said := c.run("store", "check"); !strings.Contains(said, "nothing is wrong") {
		t.Errorf("after: got %s, want nothing wrong", said)
	}
}

// An import that is killed is run again, and then all is there, once.
func TestImportIsKilledAndRunAgain(t *testing.T) {
	t.Parallel()
	c := newCommand(t)
	const jobs, items = 300, 20
	var b bytes.Buffer
	b.WriteString(`{"kind":"muster-export","format":1,"created":"2026-01-01T00:00:00Z"}` + "\n")
	for j := range jobs {
		fmt.Fprintf(&b, `{"kind":"job","id":"job-%d","record":{"kind":"pipeline","name":"default","status":"completed","version":3,"prompt":"p","context":{},`+
			`"created":"2026-01-01T00:00:00Z","updated":"2026-01-01T00:00:00Z","ended":"2026-01-01T00:00:00Z","final":{"items":{"total":%d,"integrated":%d}},`+
			`"pipeline":{"name":"default","stages":[{"name":"create","role":"creator","takes":"job"},{"name":"validate","role":"validator","takes":"item"}]}}}`+"\n", j, items, items)
		for i := range items {
			fmt.Fprintf(&b, `{"kind":"item","job":"job-%d","id":"item/%d","stage":"validate","state":"done","since":"2026-01-01T00:00:00Z","item":{"key":"%d","text":"t"}}`+"\n", j, i, i)
		}
		fmt.Fprintf(&b, `{"kind":"end","job":"job-%d","items":%d}`+"\n", j, items)
	}
	fmt.Fprintf(&b, `{"kind":"done","jobs":%d}`+"\n", jobs)
	file := c.write("backup.jsonl", b.String())
	client, err := tasks.Connect(t.Context(), c.redis)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	cmd, _ := c.start("store", "import", file)
	testutil.Eventually(t, "it has begun", func() bool {
		n, err := client.Redis().ZCard(t.Context(), "muster:{jobs}:all").Result()
		return err == nil && n > 0
	})
	_ = cmd.Process.Signal(os.Kill)
	_ = cmd.Wait()
	// The lock of the dead process ends after half a minute.
	if err := client.Redis().HDel(t.Context(), "muster:schema", "until", "holder").Err(); err != nil {
		t.Fatal(err)
	}
	var done struct{ Jobs, Kept int }
	if err := json.Unmarshal([]byte(c.run("store", "import", file, "--json")), &done); err != nil || done.Jobs+done.Kept != jobs || done.Kept == 0 {
		t.Errorf("again: got %+v, %v, want %d jobs, some of which were there", done, err, jobs)
	}
	if said := c.run("store", "check"); !strings.Contains(said, fmt.Sprintf("Checked %d jobs", jobs)) || !strings.Contains(said, "nothing is wrong") {
		t.Errorf("check: got %s, want %d jobs and nothing wrong", said, jobs)
	}
	if said := c.run("jobs", "report", "job-299", "--json"); strings.Count(said, `"key"`) != items {
		t.Errorf("report: got %s, want %d items", said, items)
	}
}
