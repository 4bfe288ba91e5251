package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/internal/trust"
	"muster/internal/yamlstrict"
	"muster/jobs/agent"
	"muster/orchestrator/webhook"
)

const example = "../../muster.example.yaml"

// write creates a settings file.
func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "muster.yaml")
	testutil.Ok(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func read(t *testing.T, src Sources) *Loaded {
	t.Helper()
	l := testutil.Must(Load(src))(t)
	return l
}

// The example contains all settings with their defaults.
func TestExample(t *testing.T) {
	t.Parallel()
	l := read(t, Sources{File: example})
	for _, s := range settings(&l.Config) {
		if o := l.origins[s.path]; o.Kind != File {
			t.Errorf("%s is missing in the example", s.path)
		}
	}
	want := Default()
	for i, s := range settings(&l.Config) {
		// An empty list or map is explicit in the example.
		if w := settings(&want)[i].v; s.v.Kind() == reflect.Slice || s.v.Kind() == reflect.Map {
			if s.v.Len() != 0 || w.Len() != 0 {
				t.Errorf("%s is %v in the example, and by default %v", s.path, s.v, w)
			}
		} else if !s.v.Equal(w) {
			t.Errorf("%s is %v in the example, and by default %v", s.path, s.v, w)
		}
	}
}

// The example documents the bounds of all settings.
func TestExampleStatesBounds(t *testing.T) {
	t.Parallel()
	b := testutil.Must(os.ReadFile(example))(t)
	text := strings.Join(strings.Fields(strings.ReplaceAll(string(b), "#", "")), " ")
	c := Default()
	for _, s := range settings(&c) {
		for _, word := range strings.Fields(s.tag.Get("oneof")) {
			if !strings.Contains(text, word) {
				t.Errorf("%s can be %s, but the example does not document it", s.path, word)
			}
		}
		bounds := strings.Fields(s.tag.Get("range"))
		if len(bounds) == 0 || s.path == "redis.port" {
			continue
		}
		if !strings.Contains(text, bounds[0]+" to "+bounds[1]) && !strings.Contains(text, "at least "+bounds[0]) {
			t.Errorf("%s is from %s to %s, but the example does not document it", s.path, bounds[0], bounds[1])
		}
	}
}

func TestDefaultsAreInBounds(t *testing.T) {
	t.Parallel()
	c := Default()
	for _, s := range settings(&c) {
		for _, err := range s.check() {
			t.Error(err)
		}
	}
}

func TestPrecedence(t *testing.T) {
	t.Parallel()
	file := write(t, `
workers: {concurrency: 2, processes: 2}
queue:
  max_workers: 2
  max_per_resolver:
    unpaywall: 2
    crossref: 3
proxies:
  sources:
    - list.txt # the first
    - https://user:secret@example.org/x?token=hush
sites:
  schedule: {quotes.toscrape.com: "0 */6 * * *"}
wait: {buffer: 2, poll: 90}
api: {read_only: yes}
`)
	l := read(t, Sources{
		File: file,
		Environ: []string{
			"MUSTER_WORKERS__PROCESSES=3", "MUSTER_QUEUE__MAX_WORKERS=3", "MUSTER_LOG__LEVEL=", "PATH=/bin",
			"MUSTER_QUEUE__MAX_PER_RESOLVER=a:1, b:2", "MUSTER_API__HOSTS=one, two",
			"MUSTER_SITES__SCHEDULE=shop=@every 1h; news = 1,2 3 * * *",
		},
		Flags: []FlagValue{{"--workers", "queue.max_workers", "4"}, {"--data-dir", "data_dir", "d"}},
	})
	want := Default()
	want.DataDir = "d"
	want.Workers.Concurrency, want.Workers.Processes = 2, 3
	want.Queue.MaxWorkers, want.Queue.MaxPerResolver = 4, map[string]int{"a": 1, "b": 2}
	want.Proxies.Sources = SourcesAt("list.txt", "https://user:secret@example.org/x?token=hush")
	want.Sites.Schedule = map[string]string{"shop": "@every 1h", "news": "1,2 3 * * *"}
	want.Wait.Buffer, want.Wait.Poll = 2, 90*time.Second
	want.API.ReadOnly, want.API.Hosts = true, []string{"one", "two"}
	if !reflect.DeepEqual(l.Config, want) {
		t.Errorf("got  %+v\nwant %+v", l.Config, want)
	}

	origins := map[string]string{
		"workers.concurrency":    file + ":2:24",
		"workers.processes":      "environment MUSTER_WORKERS__PROCESSES",
		"queue.max_workers":      "flag --workers",
		"queue.max_per_resolver": "environment MUSTER_QUEUE__MAX_PER_RESOLVER",
		"proxies.sources":        file + ":10:5",
		"log.level":              "default",
		"data_dir":               "flag --data-dir",
	}
	shown := map[string]any{
		"proxies.sources": []any{"list.txt", "https://user:xxxxx@example.org/x?xxxxx"},
		"wait.poll":       "1m30s", "proxies.refresh_every": "6h", "wait.floor": "10m", "wait.timeout": "0s",
		"workers.processes": 3, "api.read_only": true,
	}
	for _, s := range l.Settings() {
		if want, ok := origins[s.Path]; ok && s.Origin.String() != want {
			t.Errorf("%s comes from %q, want %q", s.Path, s.Origin, want)
		}
		if want, ok := shown[s.Path]; ok && !reflect.DeepEqual(s.Value, want) {
			t.Errorf("%s is shown as %#v, want %#v", s.Path, s.Value, want)
		}
	}
}

func TestSettingsOutOfRangeAreRejected(t *testing.T) {
	t.Parallel()
	type bound struct {
		path      string
		good, bad []string
	}
	for _, c := range []bound{
		{"queue.max_workers", []string{"1", "256"}, []string{"0", "257"}},
		{"queue.max_per_host", []string{"1"}, []string{"0"}},
		{"queue.max_per_resolver", []string{"a:1"}, []string{"a:0", "a:-5", "a:x", "a"}},
		{"queue.host_interval_seconds", []string{"0", "0.5", "3600"}, []string{"-1", "3601", "x"}},
		{"queue.user_agent", []string{"me (me@example.com)"}, []string{" "}},
		{"queue.lease_ttl_seconds", []string{"31"}, []string{"29", "30"}}, // the default heartbeat is 30
		{"queue.heartbeat_seconds", []string{"5", "599"}, []string{"4", "600"}},
		{"queue.max_job_attempts", []string{"1"}, []string{"0"}},
		{"queue.retry_backoff_seconds", []string{"1"}, []string{"0"}},
		{"queue.jitter_seconds", []string{"0"}, []string{"-1"}},
		{"queue.keep", []string{"0", "1m"}, []string{"59s", "-1h"}},
		{"workers.concurrency", []string{"1", "256"}, []string{"0", "257"}},
		{"workers.processes", []string{"0", "64"}, []string{"-1", "65", "1.5", "two"}},
		{"redis.ping_timeout", []string{"100ms", "1m", "2"}, []string{"0", "-1", "61s", "soon"}},
		{"redis.port", []string{"0", "65535"}, []string{"-1", "65536"}},
		{"redis.mode", []string{"child"}, []string{"chld", ""}},
		{"proxies.refresh_every", []string{"0", "1m"}, []string{"59s", "-1h"}},
		{"proxies.max_list_mb", []string{"1", "4096"}, []string{"0", "-1", "4097", "x"}},
		{"proxies.check_timeout", []string{"1s", "1m", "30"}, []string{"0", "999ms", "61s", "-1s", "soon"}},
		{"proxies.check_connect_timeout", []string{"100ms", "1m"}, []string{"0", "99ms", "61s"}},
		{"proxies.check_tries", []string{"1", "5"}, []string{"0", "6", "-1", "x"}},
		{"proxies.fallback", []string{"wait"}, []string{"direkt"}},
		{"wait.buffer", []string{"1", "1.5"}, []string{"0.9", "NaN", "Inf", "x"}},
		{"wait.timeout", []string{"0", "40m"}, []string{"500ms"}},
		{"api.listen", []string{":80", "[::1]:80"}, []string{"80", ""}},
		{"api.read_only", []string{"yes", "false"}, []string{"maybe"}},
		{"jobs.timeout", []string{"1m", "8760h"}, []string{"0", "59s", "8761h"}},
		{"jobs.stuck_after", []string{"1m", "5m", "168h"}, []string{"0", "59s", "169h"}},
		{"jobs.max_retries", []string{"0", "1000"}, []string{"-1", "1001", "x"}},
		{"jobs.check_every", []string{"1s", "1h"}, []string{"0", "61m"}},
		{"jobs.lease", []string{"5s", "10m"}, []string{"4s", "11m"}},
		{"jobs.keep", []string{"0", "1h", "87600h"}, []string{"59m", "-1h", "87601h"}},
		{"jobs.keep_for", []string{"failed:2160h", "failed:1h, cancelled:87600h", "completed:0"},
			[]string{"failed", "failed:59m", "failed:87601h", "failed:-1h", "open:1h", "processing:1h", "scrape/open:1h", "failed/scrape:1h", "scrape/:1h", "failed:soon"}},
		{"jobs.dedupe", []string{"allow", "join", "reject"}, []string{"deny", ""}},
		{"jobs.max_document_mb", []string{"1", "1024"}, []string{"0", "1025"}},
		{"agents.health_every", []string{"1s", "1h"}, []string{"0", "61m"}},
		{"agents.allow", []string{"http://a:1/x", "https://a"}, []string{"a:1", "ftp://a", "http://u:p@a", "http://a?x"}},
		{"agents.static", []string{`[{"role":"creator","url":"http://a:1"}]`, `[{"name":"x","roles":["a","b"],"url":"https://a","capacity":1000}]`},
			[]string{`{}`, `[{}]`, `[{"role":"creator"}]`, `[{"url":"http://a:1"}]`, `[{"role":"a b","url":"http://a:1"}]`, `[{"role":"a","url":"a:1"}]`,
				`[{"role":"a","url":"http://a:1","capacity":1001}]`, `[{"role":"a","url":"http://a:1"},{"role":"b","url":"http://a:1"}]`, `[{"rol":"a","url":"http://a:1"}]`}},
		{"sites.schedule", []string{"a=0 * * * *", "a=@daily", "a=off", "a=0 4 * * 7"}, []string{"a=hourly", "a=0 4 30 2 *", "a=CRON_TZ=Local @daily", "a=0 0 0 0 0 0 0", "a:b=@daily", "a=* * *"}},
		{"sites.names", []string{"a,b.c"}, []string{"a b", "a{b}"}},
		{"sites.sinks", []string{"sqlite:a.db", "s3://a/b"}, []string{"a:b"}},
		{"redis.url", []string{"", "redis://a", "redis-cluster://a,b"}, []string{"a", "http://a"}},
		{"api.keys", []string{"", strings.Repeat("k", 32)}, []string{"short"}},
		{"api.listen", []string{"127.0.0.1:0", ":http"}, []string{"127.0.0.1:99999", ":x"}},
		{"data_dir", []string{"x"}, []string{" "}},
	} {
		for _, value := range c.good {
			if _, err := Load(Sources{File: example, Flags: []FlagValue{{"--x", c.path, value}}}); err != nil {
				t.Errorf("%s %q: %v", c.path, value, err)
			}
		}
		for _, value := range c.bad {
			_, err := Load(Sources{File: example, Flags: []FlagValue{{"--x", c.path, value}}})
			if err == nil {
				t.Errorf("%s %q is accepted", c.path, value)
			} else if got := err.Error(); !strings.Contains(got, c.path) && !strings.Contains(got, "lease_ttl_seconds") {
				t.Errorf("%s %q: error %q does not contain the setting", c.path, value, got)
			}
		}
	}
}

func TestErrorsNamePositionAndRemedy(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"workers:\n  concurrency: 300\n":             "muster.yaml:2:16: workers.concurrency: 300 is out of range; use 1 to 256",
		"workers:\n  concurency: 3\n":                `muster.yaml:2:3: workers: unknown key "concurency"; did you mean "concurrency"?`,
		"worker:\n  concurrency: 3\n":                `muster.yaml:1:1: unknown key "worker"; did you mean "workers"?`,
		"workers:\n  max_per_host: 3\n":              `muster.yaml:2:3: workers: unknown key "max_per_host"; did you mean "queue.max_per_host"?`,
		"dashboard: {listen: x}\n":                   "muster.yaml:1:1: the key dashboard was removed: the section dashboard was renamed to api, and the default port is 8000",
		"agents:\n  static: [{rol: x}]\n":            `muster.yaml:2:13: agents.static[0]: unknown key "rol"; did you mean "role"?`,
		"agents:\n  static: [{capacity: hush}]\n":    "muster.yaml:2:23: agents.static[0].capacity: want a whole number, got a text",
		"workers:\n  zebra: 3\n":                     `muster.yaml:2:3: workers: unknown key "zebra"; known here: concurrency, processes, ping_timeout, log_file, metrics_listen, memory_limit_mb`,
		"http: {listen: x}\n":                        `muster.yaml:1:1: unknown key "http"; known here: data_dir, redis, log, `,
		"workers:\n  concurrency: many\n":            `muster.yaml:2:16: workers.concurrency: want a whole number, got "many"`,
		"workers: 3\n":                               "muster.yaml:1:10: workers: want a mapping with the keys concurrency, ",
		"workers:\n  concurrency: [1]\n":             "muster.yaml:2:16: workers.concurrency: want a whole number, got a list",
		"proxies:\n  sources: a.txt\n":               "muster.yaml:2:12: proxies.sources: want a list",
		"api:\n  hosts: ['']\n":                      "muster.yaml:2:11: api.hosts[0]: must not be empty",
		"proxies:\n  refresh_every: 6 hours\n":       `muster.yaml:2:18: proxies.refresh_every: want a duration such as 1.5s, 200ms or 2m, got "6 hours"`,
		"proxies:\n  refresh_every: 1s\n":            "muster.yaml:2:18: proxies.refresh_every: 1s is out of range; use 1m to 720h, or 0 for never",
		"queue:\n  max_per_resolver: {a: 0}\n":       "muster.yaml:2:21: queue.max_per_resolver: a: 0 is out of range; use 1 to 1000000",
		"queue:\n  max_per_resolver: {a: [1]}\n":     "queue.max_per_resolver.a: want a whole number, got a list",
		"redis:\n  mode: extern\n":                   `muster.yaml:2:9: redis.mode: invalid value "extern": use one of auto, external, child, embedded, did you mean "external"?`,
		"log:\n  level: info\n  level: debug\n":      "muster.yaml:3:3: not valid YAML: mapping key \"level\" already defined",
		"log:\n\tlevel: info\n":                      "muster.yaml:2:1: not valid YAML: found character '\t' that cannot start any token",
		"log:\n  level: info\n---\nlog: {}\n":        "muster.yaml:4:1: a second document in the file",
		"- a\n- b\n":                                 "muster.yaml:1:1: want a mapping with the keys data_dir, ",
		"api:\n  keys: [*hush]\n":                    "muster.yaml:2:10: no anchor before this alias; quote a text that begins with *",
		"queue: {heartbeat_seconds: 600}\n":          "queue.lease_ttl_seconds: 600 must be greater than queue.heartbeat_seconds (600)",
		"redis: {url: 'redis://x', mode: child}\n":   "remove one of them",
		"sites:\n  schedule:\n    shop: each hour\n": `muster.yaml:3:5: sites.schedule: shop: spec "each hour": `,
	} {
		_, err := Load(Sources{File: write(t, content)})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%q\n got %v\nwant %s", content, err, want)
		}
	}
}

// The error contains all mistakes.
func TestAllErrorsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := Load(Sources{
		File:    write(t, "nonsense: 1\nlog: {level: loud}\n"),
		Environ: []string{"MUSTER_WORKERS__CONCURRENCY=x", "MUSTER_WORKERS__CONCURENCY=2"},
		Flags:   []FlagValue{{"--port", "redis.port", "abc"}},
	})
	if err == nil {
		t.Fatal("it is accepted")
	}
	for _, want := range []string{
		`unknown key "nonsense"`, `invalid value "loud": use one of`, "environment MUSTER_WORKERS__CONCURRENCY: workers.concurrency",
		`MUSTER_WORKERS__CONCURENCY: unknown setting, did you mean "MUSTER_WORKERS__CONCURRENCY"?`, "flag --port: redis.port",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := Load(Sources{File: filepath.Join(dir, "none.yaml")})
	if err == nil || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("missing file: %v", err)
	}
	_, err = Load(Sources{File: write(t, strings.Repeat("# filler\n", yamlstrict.MaxSize/8))})
	if err == nil || !strings.Contains(err.Error(), "more than 1048576 bytes") {
		t.Errorf("huge file: %v", err)
	}
	_, err = Load(Sources{File: write(t, "workers: "+strings.Repeat("[", 200_000))})
	if err == nil || !strings.Contains(err.Error(), ":1:74: not valid YAML: lists and maps are nested more than 64 deep") {
		t.Errorf("nested file: got %v, want the position and the limit", err)
	}
	for _, content := range []string{"", "# nothing\n", "---\n", "workers:\nqueue:\n  # max_workers: 3\n", "workers: {concurrency: }\n"} {
		l, err := Load(Sources{File: write(t, content)})
		if err != nil || !reflect.DeepEqual(l.Config, Default()) {
			t.Errorf("%q: %v; want the defaults", content, err)
		}
	}
	named := write(t, "data_dir: from-env\n")
	if l := read(t, Sources{Environ: []string{"MUSTER_CONFIG=" + named}}); l.DataDir != "from-env" || l.Path != named {
		t.Errorf("MUSTER_CONFIG: data_dir %s of %s", l.DataDir, l.Path)
	}
}

func TestUsualFile(t *testing.T) { // not parallel: changes the working directory
	dir := t.TempDir()
	t.Chdir(dir)
	if l := read(t, Sources{}); l.Path != "" || l.DataDir != "data" {
		t.Errorf("without a file: path %q, data_dir %q", l.Path, l.DataDir)
	}
	testutil.Ok(t, os.WriteFile(UsualFile, []byte("data_dir: here\n"), 0o600))
	if l := read(t, Sources{}); l.Path != UsualFile || l.DataDir != "here" {
		t.Errorf("with one: path %q, data_dir %q", l.Path, l.DataDir)
	}
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	testutil.Ok(t, os.WriteFile(secret, []byte("redis://u:s3same@host:1/0\n"), 0o600))
	l := read(t, Sources{File: example, Environ: []string{
		"MUSTER_REDIS__URL_FILE=" + secret, "MUSTER_API__KEYS=s3same-that-is-long-enough-for-a-key,s3same2-that-is-long-enough-for-a-key", "MUSTER_PROXIES__JUDGE_KEY=s3same",
	}})
	if l.Redis.URL != "redis://u:s3same@host:1/0" {
		t.Errorf("url is %q", l.Redis.URL)
	}
	b := testutil.Must(json.Marshal(l.Settings()))(t)
	if text := string(b) + fmt.Sprint(l.Settings()); strings.Contains(text, "s3same") {
		t.Errorf("a secret is not masked: %s", text)
	}
	for _, s := range l.Settings() {
		if s.Path == "redis.url" && (s.Value != "redis://u:xxxxx@host:1/0" || s.Origin.String() != "environment MUSTER_REDIS__URL_FILE") {
			t.Errorf("redis.url is shown as %v of %v", s.Value, s.Origin)
		}
	}

	for _, env := range [][]string{
		{"MUSTER_REDIS__URL_FILE=" + secret + "x"},
		{"MUSTER_REDIS__URL_FILE=" + secret, "MUSTER_REDIS__URL=redis://x"},
		{"MUSTER_DATA_DIR__FILE=" + secret},
	} {
		if _, err := Load(Sources{File: example, Environ: env}); err == nil || !strings.Contains(err.Error(), "MUSTER_") {
			t.Errorf("%v: err = %v", env, err)
		}
	}
}

func TestSuspiciousEnvironment(t *testing.T) {
	t.Parallel()
	l := read(t, Sources{File: example, Environ: []string{
		"MUSTER_REDIS_URL=x", "MUSTER_SERVICE_HOST=10.0.0.1", "MUSTER_TEST_REDIS_SERVER=/x", "MUSTER_PORT_8080_TCP_ADDR=x",
	}})
	if len(l.Warnings) != 1 || !strings.Contains(l.Warnings[0], `did you mean "MUSTER_REDIS__URL"?`) {
		t.Errorf("warnings are %q", l.Warnings)
	}
}

func FuzzLoad(f *testing.F) {
	b := testutil.Must(os.ReadFile(example))(f)
	f.Add(b)
	f.Add([]byte("a: &x [*x]\n? b\n: c\n<<: {d: e}\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		c := Default()
		decoder("x", map[string]setting{}, nil).Decode(content, &c) // must not panic
	})
}

func TestEnvironReproducesSettings(t *testing.T) {
	t.Parallel()
	want := Default()
	want.DataDir = t.TempDir()
	want.Redis.URL = "redis://:secret@127.0.0.1:7000/3"
	want.Workers.Processes = 3
	want.Queue.MaxPerResolver = map[string]int{"crossref": 3, "unpaywall": 2}
	want.Proxies.Sources = SourcesAt("http://127.0.0.1:1/a.txt", "list.txt")
	want.Proxies.Sources[0].Headers, want.Proxies.Sources[0].Every = map[string]string{"X-A": "${B}"}, time.Hour
	want.Proxies.MinUsable = 0
	want.Proxies.RefreshEvery = 0
	want.Sites.Schedule = map[string]string{"shop": "*/5 * * * *", "news": "@every 2h"}
	want.Sites.Parallel = false
	want.Jobs.KeepFor = map[string]time.Duration{"completed": 0, "failed": 90 * 24 * time.Hour}
	want.Wait.Poll = 250 * time.Millisecond
	want.API.Keys = []string{"hush-hush-1-that-is-long-enough-for-it", "hush-${2}-that-is-long-enough-for-it"} // not a reference
	want.Tracing.Headers = map[string]string{"Authorization": "Bearer \"hush\": #1"}
	want.Webhooks.Static = []webhook.Static{{NewEndpoint: webhook.NewEndpoint{Name: "ops", URL: "https://ops.example/?token=hush", Events: []string{"site.*"}}, Secrets: []string{aSecret}}}
	want.Agents.Static = []agent.Static{{Role: "creator", URL: "http://127.0.0.1:7", Capacity: 3}, {Name: "x", Roles: []string{"a", "b"}, URL: "https://b.example/<c>"}}
	want.Queue.HostIntervalSeconds = 0.25
	want.Jobs.Keep, want.Jobs.KeepFor = 0, map[string]time.Duration{"failed": 90 * time.Minute, "completed": 0}

	// The environment of the child starts with the environment of its parent.
	file := write(t, "sites: {out: elsewhere}\n")
	inherited := []string{"MUSTER_CONFIG=" + file, "MUSTER_REDIS__URL_FILE=/run/secrets/redis", "MUSTER_WORKERS__PROCESSES=9", "MUSTER_LOG__LEVEL=debug"}
	shared := filepath.Join(t.TempDir(), "workers.yaml")
	testutil.Ok(t, want.Write(shared))
	got := testutil.Must(Load(Sources{Environ: append(inherited, Environ(shared)...)}))(t)
	if !reflect.DeepEqual(got.Config, want) {
		t.Errorf("got  %+v\nwant %+v", got.Config, want)
	}
	if info, err := os.Stat(shared); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v, %v; want 0600", info.Mode(), err)
	}
}

// FuzzOneLine checks that lists of sources, agents and webhooks in the environment are parsed, or rejected with an error without secrets.
func FuzzOneLine(f *testing.F) {
	for _, s := range []string{"list.txt,http://a.example/x", `[{"url":"http://a.example/?key=`, `[{"gateway":"http://u:`, `[{"name":"one","role":"creator","url":"http://creator:8001","secret":"`, `[{"name":"ops","url":"https://h","secrets":["`, `[{"auth":`, `[]`, "{"} {
		f.Add(s, `"]}]`)
		f.Add(s, `"}]`)
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		const hidden = "s3cr3tw0rd"
		text := before + hidden + after
		c := Default()
		for _, s := range settings(&c) {
			if !s.isObjects() {
				continue
			}
			if err := s.set(text); err != nil && strings.Contains(err.Error(), hidden) && !strings.Contains(err.Error(), "unknown key") {
				t.Errorf("%q: the error is %v", text, err)
			}
		}
	})
}

// A settings file can name a program to execute and files whose content is sent to a server, so it must be trusted.
func TestSettingsOfAnotherUserAreRejected(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	testutil.Ok(t, os.WriteFile(secret, []byte("s3same\n"), 0o600))
	text := "redis: {mode: external, server: /tmp/evil.sh, url: 'redis://:${file:" + secret + "}@127.0.0.1:1/0'}"
	refused := func(t *testing.T, file string) {
		t.Helper()
		l, err := Load(Sources{File: file})
		if !errors.Is(err, trust.ErrUntrusted) || strings.Contains(err.Error(), "s3same") {
			t.Errorf("got %+v, %v; want ErrUntrusted", l, err)
		}
	}
	t.Run("owner", func(t *testing.T) {
		t.Parallel()
		file := write(t, text)
		testutil.GiveToNobody(t, file)
		refused(t, file)
	})
	t.Run("permissions", func(t *testing.T) {
		t.Parallel()
		file := write(t, text)
		testutil.Ok(t, os.Chmod(file, 0o666))
		refused(t, file)
	})
}

func TestTracingSettings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, file, want string }{
		{"no scheme", "tracing: {endpoint: collector:4318}", "invalid collector URL"},
		{"password in the address", "tracing: {endpoint: 'http://u:hush@collector:4318'}", "invalid collector URL"},
		{"query", "tracing: {endpoint: 'http://collector:4318?key=hush'}", "invalid collector URL"},
		{"header name", "tracing: {headers: {'a b': hush}}", `invalid header name "a b"`},
		{"header value", "tracing: {headers: {A: \"hush\\nB: c\"}}", "control character"},
		{"sample", "tracing: {sample: 1.1}", "out of range"},
		{"service", "tracing: {service: ''}", "must not be empty"},
	} {
		_, err := Load(Sources{File: write(t, c.file)})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: got error %v, want one with %q and without the secret", c.name, err, c.want)
		}
	}
	_, err := Load(Sources{File: write(t, ""), Environ: []string{"MUSTER_TRACING__HEADERS=hush"}})
	if err == nil || strings.Contains(err.Error(), "hush") {
		t.Errorf("got error %v, want one without the secret", err)
	}
	l := read(t, Sources{
		File:    write(t, "tracing: {endpoint: 'https://collector/otlp/v1/traces', headers: {Authorization: Bearer hush}}"),
		Environ: []string{"MUSTER_TRACING__HEADERS=X-Key=hush;X-Other=a,b"},
	})
	if got := l.Tracing.Headers; got["X-Key"] != "hush" || got["X-Other"] != "a,b" || len(got) != 2 {
		t.Errorf("headers are %v", got)
	}
	if text := fmt.Sprint(l.Settings()); strings.Contains(text, "hush") {
		t.Errorf("a secret is not masked: %s", text)
	}
}

var update = flag.Bool("update", false, "write docs/reference/settings.md")

const settingsHead = `# Settings

Made by ` + "`go generate ./orchestrator/config`" + ` from the program and [muster.example.yaml](../../muster.example.yaml), a template that explains all settings in full, with their ranges.
[Install](../how-to/install.md#settings) explains files, environment variables, secrets and reloads.

` + "`workers.concurrency`" + ` is the key ` + "`concurrency`" + ` in the section ` + "`workers`, and `MUSTER_WORKERS__CONCURRENCY`" + ` in the environment. In parentheses are the type or the values, and the default. The variable of a *secret*
with ` + "`_FILE`" + ` reads it from a file, and it may contain references to secrets. ` + "`muster config`" + ` shows which settings need no restart.
`

// docs/reference/settings.md lists all settings with the comments of the example. go generate writes it.
func TestSettingsPage(t *testing.T) {
	t.Parallel()
	remarks, _ := testutil.Remarks(t, example)
	var page bytes.Buffer
	page.WriteString(settingsHead)
	c := Default()
	section := ""
	for _, s := range settings(&c) {
		head, _, ok := strings.Cut(s.path, ".")
		if !ok {
			head = "general"
		}
		if head != section {
			section = head
			fmt.Fprintf(&page, "\n## %s\n\n%s", head, strings.TrimLeft(testutil.Item(remarks[head])+"\n\n", "\n"))
		}
		if remarks[s.path] == "" {
			t.Errorf("muster.example.yaml has no comment on %s", s.path)
		}
		remark := remarks[s.path]
		if bounds := strings.Fields(s.tag.Get("range")); len(bounds) == 2 { // the example has them
			remark = strings.Replace(remark, " ("+bounds[0]+" to "+bounds[1]+")", "", 1)
		}
		fmt.Fprintf(&page, "* `%s`%s: %s\n", s.path, s.facts(t), testutil.Item(remark))
	}
	testutil.Page(t, "../../docs/reference/settings.md", page.Bytes(), *update, "go generate ./orchestrator/config")
}

// facts returns the valid values and the default of a setting, as Markdown.
func (s setting) facts(t *testing.T) string {
	t.Helper()
	kind := map[reflect.Type]string{
		reflect.TypeFor[string](): "text", reflect.TypeFor[bool](): "true or false", reflect.TypeFor[int](): "whole number", reflect.TypeFor[float64](): "number",
		reflect.TypeFor[time.Duration](): "duration", reflect.TypeFor[[]string](): "list", reflect.TypeFor[map[string]int](): "numbers by name",
		reflect.TypeFor[map[string]string](): "texts by name", reflect.TypeFor[map[string]time.Duration](): "durations by name",
		reflect.TypeFor[[]Source](): "list of sources", reflect.TypeFor[[]agent.Static](): "list of agents", reflect.TypeFor[[]webhook.Static](): "list of endpoints",
	}[s.v.Type()]
	if kind == "" {
		t.Errorf("%s: add a name for the type %s", s.path, s.v.Type())
	}
	var facts []string
	if words := strings.Fields(s.tag.Get("oneof")); len(words) > 0 {
		facts = append(facts, "`"+strings.Join(words, "`, `")+"`")
	} else if zero := s.tag.Get("zero"); zero != "" {
		facts = append(facts, "0 for "+zero)
	} else if s.isList() || s.isMap() {
		facts = append(facts, kind)
	}
	value := testutil.Must(json.Marshal(s.shown()))(t)
	if text := strings.Trim(string(value), `"`); text != "" && !s.isList() && !s.isMap() {
		facts = append(facts, "`"+text+"`")
	}
	if s.secret() {
		facts = append(facts, "*secret*")
	}
	if len(facts) == 0 {
		return ""
	}
	return " (" + strings.Join(facts, "; ") + ")"
}

const aSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func TestWebhooksAreRead(t *testing.T) {
	t.Parallel()
	l := testutil.Must(Load(Sources{File: write(t, "webhooks:\n  static:\n    - {name: ops, url: 'https://ops.example.org/in?token=hush', events: [site.*], secrets: ["+aSecret+"]}\n")}))(t)
	want := []webhook.Static{{NewEndpoint: webhook.NewEndpoint{Name: "ops", URL: "https://ops.example.org/in?token=hush", Events: []string{"site.*"}}, Secrets: []string{aSecret}}}
	if !reflect.DeepEqual(l.Webhooks.Static, want) {
		t.Errorf("got %+v, want %+v", l.Webhooks.Static, want)
	}
	for _, s := range l.Settings() {
		if s.Path == "webhooks.static" {
			if got := s.Value.([]any); len(got) != 1 || got[0] != "ops https://ops.example.org/in?… (site.*)" {
				t.Errorf("got %q, want no secrets", got)
			}
		}
	}
}

func TestInvalidWebhooksAreReported(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{name: a, url: 'https://x.example/'}":                                         "webhook a: secrets: one or two secrets are required",
		"{name: a, url: 'https://x.example/', secrets: [passphrase]}":                  "16 to 64 bytes as base64",
		"{name: a, url: 'https://me:pw@x.example/', secrets: [" + aSecret + "]}":       "must not contain a user or a password",
		"{url: 'https://x.example/', secrets: [" + aSecret + "]}":                      "webhook : a name is required",
		"{name: a, url: 'https://x.example/', secrets: [" + aSecret + "], event: [a]}": `unknown key "event"`,
	} {
		_, err := Load(Sources{File: write(t, "webhooks:\n  static:\n    - "+text+"\n")})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "passphrase") || strings.Contains(err.Error(), "pw@") {
			t.Errorf("%s: got %v, want %q, and no secret", text, err, want)
		}
	}
}

// Errors for removed settings name the replacement.
func TestAlertsNameWebhooks(t *testing.T) {
	t.Parallel()
	if _, err := Load(Sources{File: write(t, "sites:\n  alerts: https://x.example/\n")}); err == nil || !strings.Contains(err.Error(), "webhooks.static") {
		t.Errorf("file: got %v, want webhooks.static in it", err)
	}
	_, err := Load(Sources{Environ: []string{"MUSTER_CONFIG=/dev/null", "MUSTER_SITES__ALERTS=https://x.example/"}})
	if err == nil || !strings.Contains(err.Error(), "webhooks.static") {
		t.Errorf("environment: got %v, want webhooks.static in it", err)
	}
	if _, err := Load(Sources{File: write(t, "sites:\n  webhook_secret: a passphrase\n")}); err == nil || !strings.Contains(err.Error(), "base64") || strings.Contains(err.Error(), "passphrase") {
		t.Errorf("secret: got %v, want the format of a secret without its value", err)
	}
}

func TestAgentsFromFileAndEnvironment(t *testing.T) {
	t.Parallel()
	file := write(t, `
agents:
  static:
    - {role: creator, url: "http://one:8001", capacity: 3}
    - name: both
      roles: [creator, validator]
      url: https://two.example
      key: validator
`)
	env := []string{"CREATOR_AGENT_URL=http://creator:8001", "VALIDATOR_AGENT_URL=https://two.example"}
	l := read(t, Sources{File: file, Environ: env})
	want := []agent.Static{
		{Role: "creator", URL: "http://one:8001", Capacity: 3},
		{Name: "both", Roles: []string{"creator", "validator"}, URL: "https://two.example", Key: "validator"},
		{Name: "creator", Role: "creator", URL: "http://creator:8001"}, // the validator exists
	}
	if !reflect.DeepEqual(l.Agents.Static, want) {
		t.Errorf("got %+v\nwant %+v", l.Agents.Static, want)
	}

	// A child process inherits the variables and receives the settings.
	settings := filepath.Join(t.TempDir(), "settings.yaml")
	testutil.Ok(t, l.Write(settings))
	child := read(t, Sources{Environ: append(env, Environ(settings)...)})
	if !reflect.DeepEqual(child.Agents.Static, want) {
		t.Errorf("a child has %+v\nwant %+v", child.Agents.Static, want)
	}
	if _, err := Load(Sources{File: example, Environ: []string{"CREATOR_AGENT_URL=creator"}}); err == nil || !strings.Contains(err.Error(), "CREATOR_AGENT_URL") {
		t.Errorf("CREATOR_AGENT_URL without a scheme: got %v, want an error with its name", err)
	}
}

func TestGivenSettings(t *testing.T) {
	t.Parallel()
	l := read(t, Sources{File: write(t, "api: {listen: 127.0.0.1:8000}\n")})
	if !l.IsSet("api.listen") || l.IsSet("api.enabled") {
		t.Errorf("api.listen given: %v, want true; api.enabled given: %v, want false", l.IsSet("api.listen"), l.IsSet("api.enabled"))
	}
}

func TestSecretsOfAgentsAreMasked(t *testing.T) {
	t.Parallel()
	const secret = "MDEyMzQ1Njc4OWFiY2RlZg=="
	list := `[{"role":"creator","url":"http://creator:8001","secret":"` + secret + `"}]`
	file := filepath.Join(t.TempDir(), "agents")
	testutil.Ok(t, os.WriteFile(file, []byte(list), 0o600))
	for _, from := range []string{"MUSTER_AGENTS__STATIC=" + list, "MUSTER_AGENTS__STATIC_FILE=" + file} {
		l := testutil.Must(Load(Sources{Environ: []string{from}}))(t)
		if len(l.Agents.Static) != 1 || l.Agents.Static[0].Secret != secret {
			t.Errorf("got %d agents, want one with its secret", len(l.Agents.Static))
		}
		for _, s := range l.Settings() {
			if strings.Contains(fmt.Sprint(s.Value), secret) {
				t.Errorf("%s shows the secret", s.Path)
			}
		}
	}
	for _, bad := range []string{"short", "not base64 at all!", "MTIz"} {
		_, err := Load(Sources{Environ: []string{`MUSTER_AGENTS__STATIC=[{"role":"creator","url":"http://creator:8001","secret":"` + bad + `"}]`}})
		if err == nil || !strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), bad) {
			t.Errorf("%s: got %v, want an error without the secret", bad, err)
		}
	}
}
