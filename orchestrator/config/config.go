// Package config loads and validates the settings of an orchestrator.
//
// A setting has a path such as workers.concurrency. Its value comes from the last of these sources that defines it:
//
//	default        [Default]
//	file           muster.yaml or the given file; in secrets, ${NAME} is replaced with an environment variable and
//	               ${file:PATH} with the content of a file
//	environment    MUSTER_WORKERS__CONCURRENCY; for a secret also …_FILE, the path of a file with the value
//	flag           a flag that the command maps to the path
//
// [Load] is strict: unknown settings and invalid values are errors with their position. [Loaded.Settings] returns each value
// and its origin. A [Watcher] reloads the settings when their files change.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"muster/internal/addressfilter"
	"muster/internal/tracing"
	"muster/jobs/agent"
	"muster/orchestrator/access"
)

//go:generate go test -run TestSettingsPage -update .

// Config contains all settings. It is plain data and immutable after loading. Settings with the tag reload take effect on a
// reload; the others require a restart.
type Config struct {
	DataDir  string         `yaml:"data_dir" rule:"required"`
	Redis    Redis          `yaml:"redis"`
	Log      Log            `yaml:"log"`
	Tracing  tracing.Config `yaml:"tracing"`
	Network  Network        `yaml:"network"`
	Workers  Workers        `yaml:"workers"`
	Queue    Queue          `yaml:"queue"`
	Proxies  Proxies        `yaml:"proxies"`
	Sites    Sites          `yaml:"sites"`
	Wait     Wait           `yaml:"wait"`
	API      API            `yaml:"api"`
	Jobs     Jobs           `yaml:"jobs"`
	Agents   Agents         `yaml:"agents"`
	Webhooks Webhooks       `yaml:"webhooks"`
	Archive  string         `yaml:"archive" rule:"archive" zero:"" secret:"url"`
	Shutdown Shutdown       `yaml:"shutdown"`
}

// Redis selects the Redis to use.
type Redis struct {
	URL         string        `yaml:"url" secret:"url" rule:"redis" zero:""`
	Mode        string        `yaml:"mode" oneof:"auto external child embedded"`
	Port        int           `yaml:"port" range:"0 65535"`
	Server      string        `yaml:"server"`
	PingTimeout time.Duration `yaml:"ping_timeout" range:"100ms 1m"`
	Attempts    int           `yaml:"attempts" range:"1 1000"`
	Interval    time.Duration `yaml:"interval" range:"10ms 1m"`
}

// Log configures logging.
type Log struct {
	Level  string `yaml:"level" oneof:"debug info warn error" reload:"yes"`
	Format string `yaml:"format" oneof:"auto text json"`
}

// Network configures the addresses to which connections are allowed.
type Network struct {
	Allow []string `yaml:"allow" rule:"addresses"`
}

// Filter returns the filter for connections to untrusted addresses.
func (n Network) Filter() *addressfilter.Filter {
	f, err := addressfilter.New(n.Allow...)
	if err != nil { // not validated by Load
		return nil
	}
	return f
}

// ProxyFilter returns the filter for the addresses of proxies and for direct connections of muster proxies serve.
func (c Config) ProxyFilter() *addressfilter.Filter {
	f := c.Network.Filter()
	if !c.Proxies.AllowLocal {
		return f
	}
	f, _ = f.With(addressfilter.Local()...) // never fails
	return f
}

// Workers configures the number of concurrent tasks and worker processes.
type Workers struct {
	Concurrency int           `yaml:"concurrency" range:"1 256" reload:"yes"`
	Processes   int           `yaml:"processes" range:"0 64"`
	PingTimeout time.Duration `yaml:"ping_timeout" range:"100ms 1m"`
	LogFile     string        `yaml:"log_file"`
	Metrics     string        `yaml:"metrics_listen" rule:"address" zero:"no metrics"`
	MemoryLimit int           `yaml:"memory_limit_mb" range:"64 1048576" zero:"GOMEMLIMIT, or four fifths of the memory of the container"`
}

// Queue configures the work queue. Its names and units are the ones that users of the queue know.
type Queue struct {
	Run                 []string       `yaml:"run" rule:"queues"`
	MaxWorkers          int            `yaml:"max_workers" range:"1 256"`
	MaxPerResolver      map[string]int `yaml:"max_per_resolver" range:"1 1000000" reload:"yes"`
	MaxPerHost          int            `yaml:"max_per_host" range:"1 1000000" reload:"yes"`
	HostIntervalSeconds float64        `yaml:"host_interval_seconds" range:"0 3600" reload:"yes"`
	Robots              bool           `yaml:"robots"`
	UserAgent           string         `yaml:"user_agent" rule:"required"`
	LeaseTTLSeconds     int            `yaml:"lease_ttl_seconds" range:"30 604800"`
	HeartbeatSeconds    int            `yaml:"heartbeat_seconds" range:"5 604799"`
	MaxJobAttempts      int            `yaml:"max_job_attempts" range:"1 1000"`
	RetryBackoffSeconds int            `yaml:"retry_backoff_seconds" range:"1 86400"`
	JitterSeconds       int            `yaml:"jitter_seconds" range:"0 86400"`
	Keep                time.Duration  `yaml:"keep" range:"1m 87600h" zero:"forever"`
}

// HostInterval returns the minimum interval between two requests to a host.
func (q Queue) HostInterval() time.Duration {
	return time.Duration(q.HostIntervalSeconds * float64(time.Second))
}

// LeaseTTL returns the duration of a lease without heartbeats.
func (q Queue) LeaseTTL() time.Duration { return time.Duration(q.LeaseTTLSeconds) * time.Second }

// Heartbeat returns the interval at which leases are renewed.
func (q Queue) Heartbeat() time.Duration { return time.Duration(q.HeartbeatSeconds) * time.Second }

// RetryBackoff returns the delay before the first retry. It doubles with each retry.
func (q Queue) RetryBackoff() time.Duration {
	return time.Duration(q.RetryBackoffSeconds) * time.Second
}

// Jitter returns the maximum random addition to a delay.
func (q Queue) Jitter() time.Duration { return time.Duration(q.JitterSeconds) * time.Second }

// Proxies configures the sources, size and checks of the proxy pool.
type Proxies struct {
	Sources      []Source      `yaml:"sources" secret:"url"`
	Public       bool          `yaml:"public"`
	MinUsable    int           `yaml:"min_usable" range:"0 1000000" reload:"yes"`
	Fallback     string        `yaml:"fallback" oneof:"auto fail wait direct"`
	MaxInFlight  int           `yaml:"max_in_flight" range:"1 100000"`
	RefreshEvery time.Duration `yaml:"refresh_every" range:"1m 720h" zero:"never" reload:"yes"`
	RecheckEvery time.Duration `yaml:"recheck_every" range:"10s 24h" zero:"never" reload:"yes"`
	Judges       []string      `yaml:"judges"`
	JudgeKey     string        `yaml:"judge_key" secret:"all"`
	Concurrency  int           `yaml:"concurrency" range:"1 65536"`
	AllowLocal   bool          `yaml:"allow_local"`
	MaxListMB    int           `yaml:"max_list_mb" range:"1 4096"`
	CheckTimeout time.Duration `yaml:"check_timeout" range:"1s 1m"`
	CheckConnect time.Duration `yaml:"check_connect_timeout" range:"100ms 1m"`
	CheckTries   int           `yaml:"check_tries" range:"1 5"`
	MMDB         []string      `yaml:"mmdb"`
	Serve        Serve         `yaml:"serve"`
}

// Serve configures muster proxies serve.
type Serve struct {
	Wait             time.Duration `yaml:"wait" range:"100ms 1h"`
	Tries            int           `yaml:"tries" range:"1 20"`
	ConnectTimeout   time.Duration `yaml:"connect_timeout" range:"100ms 5m"`
	HandshakeTimeout time.Duration `yaml:"handshake_timeout" range:"100ms 5m"`
	FirstByteTimeout time.Duration `yaml:"first_byte_timeout" range:"100ms 1h"`
}

// FallbackAuto is the value of proxies.fallback that means fail if proxy sources are configured, and otherwise direct while
// the pool is empty.
const FallbackAuto = "auto"

// PoolFallback returns the fallback of a request through the pool. There, auto means fail, because the decision to use the
// pool has already been made.
func PoolFallback(fallback string) string {
	if fallback == FallbackAuto {
		return "fail"
	}
	return fallback
}

// HasSources reports whether proxy sources are configured.
func (p Proxies) HasSources() bool { return len(p.Sources) > 0 || p.Public }

// MaxListBytes returns the maximum size of a list.
func (p Proxies) MaxListBytes() int64 { return int64(p.MaxListMB) << 20 }

// Unproxied reports whether neither proxy sources nor a fallback are configured.
func (p Proxies) Unproxied() bool { return p.Fallback == FallbackAuto && !p.HasSources() }

// CanCheck reports whether proxies can be checked: with a configured judge, or because local proxies are allowed.
func (p Proxies) CanCheck() bool {
	return len(p.Judges) > 0 || p.AllowLocal
}

// Sites configures which sites are scraped, when, and the destination of records.
type Sites struct {
	Dir        string            `yaml:"dir" reload:"yes"`
	Names      []string          `yaml:"names" rule:"site" reload:"yes"`
	Schedule   map[string]string `yaml:"schedule" rule:"cron" reload:"yes"`
	Out        string            `yaml:"out"`
	Parallel   bool              `yaml:"parallel" reload:"yes"`
	MaxPages   int               `yaml:"max_pages_at_once" range:"1 1000000" zero:"the number of workers"`
	Cache      string            `yaml:"cache"`
	Browser    string            `yaml:"browser"`
	Extractors map[string]string `yaml:"extractors"`
	Sinks      []string          `yaml:"sinks" secret:"url" rule:"sinks"`
	Secret     string            `yaml:"webhook_secret" secret:"all" rule:"secret" zero:""`
}

// Wait configures how commands wait for a job. The timeout of a job with n chunks is ⌈n / workers⌉ × PerChunk × Buffer, but at
// least Floor. A scrape that makes progress at least once in Unknown has no timeout.
type Wait struct {
	Poll     time.Duration `yaml:"poll" range:"10ms 10m" reload:"yes"`
	Timeout  time.Duration `yaml:"timeout" range:"1s 168h" zero:"a timeout computed from the number of chunks" reload:"yes"`
	PerChunk time.Duration `yaml:"per_chunk" range:"1s 24h" reload:"yes"`
	Buffer   float64       `yaml:"buffer" range:"1 10" reload:"yes"`
	Floor    time.Duration `yaml:"floor" range:"1s 168h" reload:"yes"`
	Unknown  time.Duration `yaml:"unknown" range:"1s 168h" reload:"yes"`
	Warn     time.Duration `yaml:"warn" range:"1s 24h" reload:"yes"`
}

// API configures the HTTP API and the web pages.
type API struct {
	Listen   string   `yaml:"listen" rule:"address"`
	Enabled  bool     `yaml:"enabled"`
	ReadOnly bool     `yaml:"read_only"`
	Keys     []string `yaml:"keys" secret:"all" rule:"keys" reload:"yes"`
	Hosts    []string `yaml:"hosts" reload:"yes"`

	Rate  float64             `yaml:"rate" range:"0 1000000"`
	Burst int                 `yaml:"burst" range:"1 1000000"`
	CORS  []string            `yaml:"cors" rule:"origins"`
	JWT   access.TokensConfig `yaml:"jwt"`
}

// Jobs configures the execution and retention of pipeline jobs.
type Jobs struct {
	Timeout       time.Duration            `yaml:"timeout" range:"1m 8760h" reload:"yes"`
	StuckAfter    time.Duration            `yaml:"stuck_after" range:"1m 168h" reload:"yes"`
	MaxRetries    int                      `yaml:"max_retries" range:"0 1000" reload:"yes"`
	CheckEvery    time.Duration            `yaml:"check_every" range:"1s 1h" reload:"yes"`
	Lease         time.Duration            `yaml:"lease" range:"5s 10m"`
	Keep          time.Duration            `yaml:"keep" range:"1h 87600h" zero:"forever" reload:"yes"`
	KeepFor       map[string]time.Duration `yaml:"keep_for" range:"1h 87600h" zero:"forever" rule:"jobs" reload:"yes"`
	Dedupe        string                   `yaml:"dedupe" oneof:"allow join reject" reload:"yes"`
	Pipelines     string                   `yaml:"pipelines" reload:"yes"`
	Documents     string                   `yaml:"documents"`
	MaxDocumentMB int                      `yaml:"max_document_mb" range:"1 1024"`
}

// MaxDocumentBytes returns the maximum size of a document.
func (j Jobs) MaxDocumentBytes() int64 { return int64(j.MaxDocumentMB) << 20 }

// Agents configures static agents and the URLs to which work may be pushed.
type Agents struct {
	Allow       []string       `yaml:"allow" rule:"urls" reload:"yes"`
	Concurrency map[string]int `yaml:"concurrency" range:"1 1000000" reload:"yes"`
	PerMinute   map[string]int `yaml:"per_minute" range:"1 1000000" reload:"yes"`
	Static      []agent.Static `yaml:"static" secret:"all" reload:"yes"`
	HealthEvery time.Duration  `yaml:"health_every" range:"1s 1h" reload:"yes"`
}

// Shutdown configures the shutdown.
type Shutdown struct {
	Drain time.Duration `yaml:"drain" range:"0s 24h"`
}

// Default returns the default settings.
func Default() Config {
	return Config{
		DataDir: "data",
		Redis: Redis{
			Mode:        "auto",
			PingTimeout: 2 * time.Second,
			Attempts:    10,
			Interval:    500 * time.Millisecond,
		},
		Log:     Log{Level: "info", Format: "auto"},
		Tracing: tracing.Config{Sample: 1, Service: "muster", Timeout: 5 * time.Second}, // without an endpoint, tracing is disabled
		Workers: Workers{Concurrency: 8, PingTimeout: 5 * time.Second},
		Queue: Queue{
			MaxWorkers:          8,
			MaxPerHost:          4,
			Robots:              true,
			UserAgent:           "muster/1.0",
			LeaseTTLSeconds:     600,
			HeartbeatSeconds:    30,
			MaxJobAttempts:      3,
			RetryBackoffSeconds: 60,
			JitterSeconds:       15,
		},
		Proxies: Proxies{
			MinUsable:    10,
			Fallback:     FallbackAuto,
			MaxInFlight:  32,
			RefreshEvery: 6 * time.Hour,
			RecheckEvery: time.Minute,
			Concurrency:  256,
			MaxListMB:    32,
			CheckTimeout: 12 * time.Second,
			CheckConnect: 4 * time.Second,
			CheckTries:   1,
			Serve: Serve{
				Wait:             30 * time.Second,
				Tries:            3,
				ConnectTimeout:   4 * time.Second,
				HandshakeTimeout: 8 * time.Second,
				FirstByteTimeout: 15 * time.Second,
			},
		},
		Sites: Sites{Parallel: true},
		Wait: Wait{
			Poll:     15 * time.Second,
			PerChunk: 900 * time.Second,
			Buffer:   1.5,
			Floor:    600 * time.Second,
			Unknown:  1800 * time.Second,
			Warn:     120 * time.Second,
		},
		API: API{
			Listen: "127.0.0.1:8000", Enabled: true, Rate: 1000, Burst: 2000,
			JWT: access.TokensConfig{RoleClaim: "role", Leeway: 30 * time.Second},
		},
		Jobs: Jobs{
			Timeout:       168 * time.Hour,
			StuckAfter:    time.Hour,
			MaxRetries:    5,
			CheckEvery:    30 * time.Second,
			Lease:         30 * time.Second,
			Keep:          720 * time.Hour,
			Dedupe:        "join",
			MaxDocumentMB: 64,
		},
		Agents:   Agents{HealthEvery: 15 * time.Second},
		Webhooks: defaultWebhooks(),
		Shutdown: Shutdown{Drain: 30 * time.Second},
	}
}

// WorkerLog returns the path of the log file of worker processes.
func (c Config) WorkerLog() string {
	return cmp.Or(c.Workers.LogFile, filepath.Join(c.DataDir, "logs", "worker.log"))
}

// Records returns the directory of records.
func (c Config) Records() string {
	return cmp.Or(c.Sites.Out, filepath.Join(c.DataDir, "records"))
}

// Definitions returns the directory of the user's site definitions.
func (c Config) Definitions() string {
	return cmp.Or(c.Sites.Dir, filepath.Join(c.DataDir, "sites"))
}

// Pipelines returns the directory of pipeline definitions.
func (c Config) Pipelines() string {
	return cmp.Or(c.Jobs.Pipelines, filepath.Join(c.DataDir, "pipelines"))
}

// Documents returns the directory of the documents of jobs.
func (c Config) Documents() string {
	return cmp.Or(c.Jobs.Documents, filepath.Join(c.DataDir, "documents"))
}

// JobStates are the names in the setting jobs.keep_for: the final states of jobs.
var JobStates = []string{"completed", "failed", "cancelled"}

// checkKeepFor validates the names in jobs.keep_for.
func checkKeepFor(keep map[string]time.Duration) []error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(keep)) {
		if !slices.Contains(JobStates, name) {
			errs = append(errs, fmt.Errorf("invalid name %q: use a final state of jobs, one of %s", name, strings.Join(JobStates, ", ")))
		}
	}
	return errs
}

// checkOrigin validates the origin of web pages.
func checkOrigin(text string) error {
	u, err := url.Parse(text)
	switch {
	case text == "*":
		return errors.New("invalid origin *: it would allow every web page to call the API; list the origins")
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || text != u.Scheme+"://"+u.Host:
		return fmt.Errorf("invalid origin %q: use https://host or http://host:port without a path", maskURL(text))
	}
	return nil
}

// checkCollector validates the URL of a collector.
func checkCollector(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("invalid collector URL %q: use http://host:4318 or https://host/path; set credentials in tracing.headers", maskURL(text))
	}
	return nil
}

// checkHeaders validates request headers. The errors do not contain header values.
func checkHeaders(headers map[string]string) []error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			errs = append(errs, fmt.Errorf("invalid header name %.50q", name))
		case strings.ContainsFunc(headers[name], func(c rune) bool { return c < ' ' || c == 0x7f }):
			errs = append(errs, fmt.Errorf("the value of header %.50s contains a control character", name))
		}
	}
	return errs
}
