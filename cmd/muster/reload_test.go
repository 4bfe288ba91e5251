package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"muster/internal/testutil"
)

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
			hangup(t, cmd, out, "the key in force stays: secret file key: empty file", 1)
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
