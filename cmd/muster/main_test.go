package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/urfave/cli/v2"

	"muster/internal/testutil"
	"muster/jobs"
	"muster/jobs/agent"
)

func TestMain(m *testing.M) {
	cli.HelpPrinter = printHelp                            // as Main does
	if err := flag.Set("test.parallel", "8"); err != nil { // the tests wait for the processes of commands
		panic(err)
	}
	testscript.Main(m, map[string]func(){"muster": func() { os.Exit(Main()) }})
}

// TestScript runs the manual: every script under testdata/script is a page of
// it, executed by the real command.
func TestScript(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"waitfor": waitFor, "serve": serve, "agents": agents, "capture": capture},
		Setup: func(e *testscript.Env) error {
			e.Setenv("MUSTER_DATA_DIR", e.WorkDir+"/data")
			// Never a Redis of this machine that has other uses.
			mode := "embedded"
			if _, err := exec.LookPath("redis-server"); err == nil {
				mode = "child"
			}
			e.Setenv("MUSTER_REDIS__MODE", mode)
			e.Setenv("LONG", strings.Repeat("0", 2100)) // more than an id may have
			return nil
		},
	})
}

// serve serves a folder by HTTP until the script ends, and sets SITE to its URL.
func serve(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: serve DIR")
	}
	srv := httptest.NewServer(http.FileServer(http.Dir(ts.MkAbs(args[0]))))
	ts.Defer(srv.Close)
	ts.Setenv("SITE", srv.URL)
}

// agents serves the agents of the default pipeline until the script ends, and puts
// them into the settings. The creator makes an item of each word of the prompt; the
// validator rejects bad ones, and fails for odd ones.
func agents(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: agents")
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet { // the check of its health
			return
		}
		var work agent.Body
		if err := json.NewDecoder(r.Body).Decode(&work); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var reply agent.Reply
		switch {
		case work.Item == nil:
			for word := range strings.FieldsSeq(work.Job.Prompt) {
				reply.Items = append(reply.Items, jobs.NewItem{Key: word, Text: "Item " + word})
			}
		case work.Item.Key == "bad":
			reply.Verdict, reply.Reason = "reject", "it is bad"
		case work.Item.Key == "odd":
			reply.Error, reply.Permanent = "it is odd", true
		}
		_ = json.NewEncoder(w).Encode(reply) // the script fails if it is missing
	}))
	ts.Defer(srv.Close)
	ts.Setenv("CREATOR_AGENT_URL", srv.URL+"/creator")
	ts.Setenv("VALIDATOR_AGENT_URL", srv.URL+"/validator")
}

// capture sets a variable to the first group of a regular expression in the output of the last command.
func capture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: capture NAME REGEXP")
	}
	m := regexp.MustCompile("(?m)" + args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
	if m == nil {
		ts.Fatalf("no match for %s", args[1])
	}
	ts.Setenv(args[0], m[1])
}

// waitFor waits until a file exists: a background command has then got that far.
func waitFor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: waitfor FILE")
	}
	if !testutil.Becomes(func() bool { _, err := os.Stat(ts.MkAbs(args[0])); return err == nil }) {
		ts.Fatalf("there is still no file %s", args[0])
	}
}

// Names of the first design run the same commands, and help omits them.
func TestHiddenNamesOfCommands(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"orchestrator start", "api serve", "job start", "job status", "job list", "job cancel", "queue pause", "queue resume", "proxies count", "site scrape", "site status", "site list"} {
		var out bytes.Buffer
		app := newApp(environment{stdout: &out, stderr: &out})
		app.Writer = &out
		if err := app.Run(append([]string{"muster"}, append(strings.Fields(line), "--help")...)); err != nil || !strings.Contains(out.String(), "muster "+line) {
			t.Errorf("muster %s --help: got %v and %q, want the help of the command", line, err, out.String())
		}
	}
	var out bytes.Buffer
	app := newApp(environment{stdout: &out, stderr: &out})
	app.Writer = &out
	if err := app.Run([]string{"muster", "--help"}); err != nil || strings.Contains(out.String(), "another name") {
		t.Errorf("muster --help: got %v and\n%s\nwant no hidden names", err, out.String())
	}
}

// A command stopped by Ctrl-C prints the state of its work and how to continue.
func TestInterruptedCommandsSayHowToContinue(t *testing.T) {
	t.Parallel()
	c := newCommand(t)
	id := strings.TrimSpace(c.run("workflows", "send", "approve", "1", "--external"))
	if id == "" {
		t.Fatal("send printed no id")
	}
	job := c.run("jobs", "start", "--prompt", "find duties", "--json")
	_, job, _ = strings.Cut(job, `"job_id": "`)
	job, _, _ = strings.Cut(job, `"`)
	kept := t.TempDir()
	for _, r := range []struct {
		args  []string
		ready string // part of its output while it waits
		want  string
	}{
		{[]string{"jobs", "status", job, "--wait"}, "default", "muster: interrupted: the job is not cancelled; wait again with muster jobs status " + job},
		{[]string{"start"}, "running; Ctrl-C stops", "muster: interrupted: unfinished work is kept; resume with muster start"},
		{[]string{"jobs", "events", "all", "--follow", "--after", "0"}, "job.created", "muster: interrupted\n"},
		{[]string{"demo", "--dir", kept}, "demo: started", "muster: interrupted: the demo was stopped; its data is in " + kept},
		{[]string{"demo"}, "demo: started", "muster: interrupted: the demo was stopped and its data removed"},
	} {
		cmd, out := c.start(r.args...)
		if !testutil.Becomes(func() bool { return strings.Contains(out.String(), r.ready) }) {
			t.Fatalf("%v does not wait:\n%s", r.args, out)
		}
		finish(t, cmd, out)
		if !strings.Contains(out.String(), r.want) {
			t.Errorf("%v: got\n%s\nwant %q in it", r.args, out, r.want)
		}
	}
}

func TestOnlyInterruptionsSayWhatIsLeft(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	ctx, cancel := context.WithCancelCause(t.Context())
	if got := withState(ctx, failed, "more"); !errors.Is(got, failed) {
		t.Errorf("while it runs: got %v, want the error", got)
	}
	cancel(errInterrupted)
	if got := withState(ctx, failed, "continue with %s", "this"); got.Error() != "interrupted: continue with this" || !errors.Is(got, errInterrupted) {
		t.Errorf("after Ctrl-C: got %v", got)
	}
}

// keepsRunning are the commands that run until they are interrupted and have
// settings, with the output that shows that they run.
var keepsRunning = map[string]struct {
	args  []string
	ready string
}{
	"start":         {[]string{"start"}, "running; Ctrl-C stops"},
	"worker":        {[]string{"worker"}, "worker started"},
	"dashboard":     {[]string{"dashboard"}, "dashboard: "},
	"proxies serve": {[]string{"proxies", "serve", "--listen", "127.0.0.1:0"}, "proxy: "},
	"queue run":     {[]string{"queue", "run", "--metrics-listen", "127.0.0.1:0"}, "metrics are at"},
}

// T-119: each long-running command reloads a changed file, names the settings that
// need a restart, and keeps its settings when a file is invalid.
func TestChangedFileReloads(t *testing.T) {
	t.Parallel()
	for name, c := range keepsRunning {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newCommand(t)
			const always = "api: {listen: '127.0.0.1:0'}\n"
			k.write("muster.yaml", always)
			cmd, out := k.start(c.args...)
			await := func(want string) {
				t.Helper()
				if !testutil.Becomes(func() bool { return strings.Contains(out.String(), want) }) {
					t.Fatalf("got no %q:\n%s", want, out)
				}
			}
			await(c.ready)
			k.write("other.yaml", always+"jobs: {stuck_after: 5m, lease: 40s}\n")
			testutil.Ok(t, os.Rename(filepath.Join(k.dir, "other.yaml"), filepath.Join(k.dir, "muster.yaml")))
			await("jobs.stuck_after: 1h → 5m")
			await("jobs.lease")
			await("needs_restart")
			k.write("muster.yaml", always+"jobs: {stuck_after: 7m, lease: 40s")
			await("reload failed")
			await("muster.yaml:2:")
			k.write("muster.yaml", always+"jobs: {stuck_after: 7m, lease: 40s}\n")
			await("jobs.stuck_after: 5m → 7m")
			if n := strings.Count(out.String(), "reload failed"); n != 1 {
				t.Errorf("the invalid file was reported %d times, want once:\n%s", n, out)
			}
			finish(t, cmd, out)
		})
	}
}

// A key can be replaced while the interface is served, and worker processes get
// the reloaded settings.
func TestKeysRotate(t *testing.T) {
	t.Parallel()
	k := newCommand(t)
	key := k.write("key", "the-old-key-that-is-long-enough-0\n")
	testutil.Ok(t, os.Chmod(key, 0o600))
	k.write("muster.yaml", "api: {listen: '127.0.0.1:0', keys: ['${file:key}']}\nworkers: {processes: 2}\n")
	cmd, out := k.start("start", "--log-format", "text")
	testutil.Eventually(t, "the interface to be served", func() bool { return strings.Contains(out.String(), "HTTP interface is up") })
	base := regexp.MustCompile(`url=(http://[0-9.:]+)`).FindStringSubmatch(out.String())[1]
	asks := func(key string) int {
		req := testutil.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/v1/pipelines", nil))(t)
		req.Header.Set("Authorization", "Bearer "+key)
		res := testutil.Must(http.DefaultClient.Do(req))(t)
		defer res.Body.Close()
		return res.StatusCode
	}
	if got := asks("the-old-key-that-is-long-enough-0"); got != http.StatusOK {
		t.Fatalf("got %d with the key, want 200:\n%s", got, out)
	}
	k.write("key", "the-new-key-that-is-long-enough-0\n")
	k.write("muster.yaml", "api: {listen: '127.0.0.1:0', keys: ['${file:key}']}\nworkers: {processes: 2, concurrency: 3}\n")
	testutil.Eventually(t, "the new key to be taken and the old one refused", func() bool {
		return asks("the-new-key-that-is-long-enough-0") == http.StatusOK && asks("the-old-key-that-is-long-enough-0") == http.StatusUnauthorized
	})
	testutil.Eventually(t, "both worker processes to have the new concurrency", func() bool {
		return strings.Count(k.run("workers", "list", "--json"), `"concurrency": 3`) == 2
	})
	if text := out.String(); strings.Contains(text, "the-new-key-that-is-long-enough-0") || strings.Contains(text, "the-old-key-that-is-long-enough-0") {
		t.Errorf("the log has a key:\n%s", text)
	}
	finish(t, cmd, out)
	if left, err := filepath.Glob(filepath.Join(k.dir, "data", "run", "settings.*")); err != nil || len(left) > 0 {
		t.Errorf("got %q, %v; want no settings of workers left", left, err)
	}
}

// log.level takes effect in the loggers that there are.
func TestLogLevelReloads(t *testing.T) {
	t.Parallel()
	k := newCommand(t)
	k.write("muster.yaml", "log: {level: error}\n")
	cmd, out := k.start("worker", "--ready", "up")
	testutil.Eventually(t, "the worker to be ready", func() bool { _, err := os.Stat(filepath.Join(k.dir, "up")); return err == nil })
	k.write("muster.yaml", "log: {level: debug}\n")
	testutil.Eventually(t, "the log to have the new level", func() bool { return strings.Contains(out.String(), "error → debug") })
	testutil.Ok(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait() // the log has it
	if text := out.String(); strings.Contains(text, "worker started") || !strings.Contains(text, "worker has stopped") {
		t.Errorf("got\n%s\nwant levels below error only after the reload", text)
	}
}

// The key files of a judge and of the proxy are read again.
func TestKeyFilesReload(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"judge":         {"judge", "--listen", "127.0.0.1:0"},
		"proxies serve": {"proxies", "serve", "--listen", "127.0.0.1:0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newCommand(t)
			k.write("key", "a-key-that-is-long-enough\n")
			cmd, out := k.start(append(args, "--key-file", "key")...)
			testutil.Eventually(t, name+" to run", func() bool {
				return strings.Contains(out.String(), ": http") || strings.Contains(out.String(), "proxy: ")
			})
			k.write("key", "\n")
			hangup(t, cmd, out, "the key in force stays: read the key in key: secret file key: empty file", 1)
			k.write("key", "another-key-that-is-long-enough\n")
			hangup(t, cmd, out, "reloaded: key", 1)
			finish(t, cmd, out)
		})
	}
}

// T-118: all missing settings are named before any connection.
func TestMissingSecretsAreNamedBeforeTheStart(t *testing.T) {
	t.Parallel()
	k := newCommand(t)
	k.environ = append(k.environ, "MUSTER_REDIS__URL=") // of the file
	k.write("muster.yaml", "redis: {url: '${MISSING_URL}'}\nproxies: {judge_key: '${file:/none/judge}', sources: [{url: 'https://list.test/', auth: 'u:${MISSING_AUTH}'}]}\n"+
		"sites: {dir: sites}\nworkers: {concurrency: 999}\n")
	testutil.Ok(t, os.Mkdir(filepath.Join(k.dir, "sites"), 0o700))
	for i, name := range []string{"one", "two"} {
		k.write("sites/"+name+".yaml", fmt.Sprintf("site: %s\nbase_url: http://127.0.0.1:1\nstart: [/]\nheaders: {X-Token: '${MISSING_%d}'}\nrecords:\n  thing: {from: listing, fields: {name: h1}}\n", name, i))
	}
	all := []string{"muster.yaml:1:14: redis.url: environment variable MISSING_URL", "/none/judge", "MISSING_AUTH", "999 is out of range"}
	for name, c := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"start":          {[]string{"start"}, exitUsage, append(all, "MISSING_0", "MISSING_1", "one.yaml:4:")},
		"worker":         {[]string{"worker"}, exitUsage, append(all, "MISSING_0", "MISSING_1")},
		"scrape":         {[]string{"scrape", "two"}, exitUsage, append(all, "MISSING_1")},
		"config --check": {[]string{"config", "--check"}, exitFailed, append(all, "MISSING_0", "MISSING_1")},
		"a file":         {[]string{"config", "--check", "muster.yaml"}, exitFailed, append(all, "MISSING_0", "MISSING_1")},
	} {
		cmd := exec.CommandContext(t.Context(), k.program, c.args...)
		cmd.Dir, cmd.Env = k.dir, k.environ
		b, _ := cmd.CombinedOutput() // the exit code is checked
		if got := cmd.ProcessState.ExitCode(); got != c.code {
			t.Errorf("%s: got exit code %d, want %d", name, got, c.code)
		}
		for _, want := range c.want {
			if !strings.Contains(string(b), want) {
				t.Errorf("%s: got\n%s\nwant it to name %s", name, b, want)
			}
		}
		if name == "scrape" && strings.Contains(string(b), "MISSING_0") {
			t.Errorf("%s: got\n%s\nwant nothing about another site", name, b)
		}
	}
	if _, err := os.Stat(filepath.Join(k.dir, "data", "run")); err == nil {
		t.Error("something was started")
	}
}

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
		"dashboard":     {[]string{"dashboard", "--setting", "api.listen=127.0.0.1:0"}, "dashboard: ", nothing},
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
