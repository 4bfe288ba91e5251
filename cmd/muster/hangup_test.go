package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"muster/internal/testutil"
)

// hangup sends SIGHUP and waits until the command has printed want n times.
func hangup(t *testing.T, cmd *exec.Cmd, out *testutil.Output, want string, n int) {
	t.Helper()
	testutil.Ok(t, cmd.Process.Signal(syscall.SIGHUP))
	if !testutil.Becomes(func() bool { return strings.Count(out.String(), want) >= n }) {
		t.Fatalf("got no %q after SIGHUP:\n%s", want, out)
	}
}

// finish interrupts a command. It fails if the command has ended before.
func finish(t *testing.T, cmd *exec.Cmd, out *testutil.Output) {
	t.Helper()
	endsWith(t, cmd, out, os.Interrupt, exitInterrupted)
}

// endsWith sends a signal to a command and checks its exit code.
func endsWith(t *testing.T, cmd *exec.Cmd, out *testutil.Output, signal os.Signal, code int) {
	t.Helper()
	testutil.Ok(t, cmd.Process.Signal(signal))
	_ = cmd.Wait() // checked by the exit code
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("got exit code %d after %v, want %d:\n%s", got, signal, code, out)
	}
}

// SIGHUP stops no server. SIGTERM is the usual way to stop one: it exits
// with 0 and adds no line to its log.
func TestSignalsOfServers(t *testing.T) {
	t.Parallel()
	const nothing = "reloaded; no changes"
	for name, c := range map[string]struct {
		args  []string
		ready string // output when it runs
		want  string // output after the signal; "" if it reloads nothing
	}{
		"worker":        {[]string{"worker"}, "worker started", nothing},
		"start":         {[]string{"start"}, "running; Ctrl-C stops", nothing},
		"proxies serve": {[]string{"proxies", "serve", "--listen", "127.0.0.1:0"}, "proxy: ", nothing},
		"judge":         {[]string{"judge", "--listen", "127.0.0.1:0"}, "judge: ", ""},
		"dashboard":     {[]string{"dashboard", "--listen", "127.0.0.1:0"}, "dashboard: ", nothing},
		"queue run":     {[]string{"queue", "run", "--metrics-listen", "127.0.0.1:0"}, "metrics are at", nothing},
		"demo":          {[]string{"demo", "--keep", "--dir", "demo"}, "demo: ", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newCommand(t)
			cmd, out := k.start(c.args...)
			testutil.Eventually(t, name+" to run", func() bool { return strings.Contains(out.String(), c.ready) })
			if c.want != "" {
				hangup(t, cmd, out, c.want, 1)
				hangup(t, cmd, out, c.want, 2)
			} else if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			if name == "demo" {
				finish(t, cmd, out)
				return
			}
			endsWith(t, cmd, out, syscall.SIGTERM, exitDone)
			if strings.Contains(out.String(), "interrupted") {
				t.Errorf("got a message after SIGTERM:\n%s", out)
			}
		})
	}
	t.Run("scrape", func(t *testing.T) {
		t.Parallel()
		k, g := newCommand(t), newGate(t, 3, 1)
		k.site("gate", g)
		cmd, out := k.start("scrape", "gate", "--wait", "--setting", "sites.dir=sites")
		testutil.Eventually(t, "the scrape to run", func() bool { return strings.Contains(k.run("scrapes", "list"), "RUNNING") })
		hangup(t, cmd, out, nothing, 1)
		g.release()
		if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "COMPLETE") {
			t.Errorf("got %v, want the scrape to end as if nothing were:\n%s", err, out)
		}
	})
}

// SIGHUP makes start and worker use new settings; invalid ones change nothing.
func TestHangupReloads(t *testing.T) {
	t.Parallel()
	const site = "site: %s\nbase_url: http://127.0.0.1:%d\nstart: [/]\nproxy: {fallback: direct}\nrecords:\n  thing: {from: listing, fields: {name: h1}}\n"
	k, port := newCommand(t), testutil.FreePort(t)
	testutil.Ok(t, os.MkdirAll(k.dir+"/sites", 0o755))
	k.write("muster.yaml", "sites: {dir: sites}\n")
	k.write("sites/one.yaml", fmt.Sprintf(site, "one", port))
	start, out := k.start("start", "--log-format", "text")
	testutil.Eventually(t, "the orchestrator to run", func() bool { return strings.Contains(out.String(), "running; Ctrl-C stops") })
	worker, printed := k.start("worker", "--name", "other")
	testutil.Eventually(t, "the worker to run", func() bool { return strings.Contains(printed.String(), "worker started") })

	k.write("muster.yaml", "sites: {dir: sites, schedule: {two: '@every 1s'}}\nworkers: {concurrency: 3}\n")
	hangup(t, start, out, `sites.schedule: no site \"two\"`, 1)
	k.write("sites/two.yaml", fmt.Sprintf(site, "two", port))
	hangup(t, start, out, "workers.concurrency: 8 → 3", 1)
	testutil.Eventually(t, "the new site to be scraped on the new schedule", func() bool {
		return strings.Contains(k.run("scrapes", "list"), "scrape_two_")
	})
	hangup(t, worker, printed, "workers.concurrency: 8 → 3", 1)
	testutil.Eventually(t, "both workers to have the new concurrency", func() bool {
		return strings.Count(k.run("workers", "list", "--json"), `"concurrency": 3`) == 2
	})
	k.write("muster.yaml", "workers: {concurrency: lots}\n")
	hangup(t, start, out, "reload failed", 2)
	hangup(t, worker, printed, "reload failed", 1)
	finish(t, worker, printed)
	finish(t, start, out)
}
