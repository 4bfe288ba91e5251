// Package config reads and checks the settings of an orchestrator.
//
// A setting has a path, as in workers.concurrency. Its value comes from the
// last of these that has one:
//
//	the default          [Default]
//	the file             muster.yaml, or the one given; in a secret ${NAME} is a variable
//	                     of the environment, and ${file:PATH} the content of a file
//	the environment      MUSTER_WORKERS__CONCURRENCY; for a secret also …_FILE, a file that holds it
//	a flag               whatever the command maps to the path
//
// [Load] is strict: what it does not know, or what is out of bounds, is an
// error with its place. [Loaded.Settings] returns each value and where it came
// from. A [Watcher] loads the settings again when their files change.
package config

import (
	"cmp"
	"path/filepath"
	"time"

	"muster/internal/addressfilter"
)

//go:generate go test -run TestSettingsPage -update .

// Config is every setting. It is plain data, and not changed once loaded. A
// setting with the tag reload takes effect when a process loads it again; a
// change of another needs a restart.
type Config struct {
	DataDir  string   `yaml:"data_dir" rule:"required"`
	Redis    Redis    `yaml:"redis"`
	Log      Log      `yaml:"log"`
	Tracing  Tracing  `yaml:"tracing"`
	Network  Network  `yaml:"network"`
	Workers  Workers  `yaml:"workers"`
	Queue    Queue    `yaml:"queue"`
	Proxies  Proxies  `yaml:"proxies"`
	Sites    Sites    `yaml:"sites"`
	Wait     Wait     `yaml:"wait"`
	API      API      `yaml:"api"`
	Jobs     Jobs     `yaml:"jobs"`
	Agents   Agents   `yaml:"agents"`
	Webhooks Webhooks `yaml:"webhooks"`
	Shutdown Shutdown `yaml:"shutdown"`
}

// Redis says which Redis to work with.
type Redis struct {
	URL         string        `yaml:"url" secret:"url"`
	Mode        string        `yaml:"mode" oneof:"auto external child embedded"`
	Port        int           `yaml:"port" range:"0 65535"`
	Server      string        `yaml:"server"`
	PingTimeout time.Duration `yaml:"ping_timeout" range:"100ms 1m"`
	Attempts    int           `yaml:"attempts" range:"1 1000"`
	Interval    time.Duration `yaml:"interval" range:"10ms 1m"`
}

// Log says what is logged and how.
type Log struct {
	Level  string `yaml:"level" oneof:"debug info warn error" reload:"yes"`
	Format string `yaml:"format" oneof:"auto text json"`
}

// Network says what may be connected to.
type Network struct {
	Allow []string `yaml:"allow" rule:"addresses"`
}

// Filter is for connections to addresses that outsiders choose.
func (n Network) Filter() *addressfilter.Filter {
	f, err := addressfilter.New(n.Allow...)
	if err != nil { // of settings that Load has not checked
		return nil
	}
	return f
}

// ProxyFilter is Filter for the names of proxies, and for what the proxy of
// muster proxies serve reaches by itself.
func (c Config) ProxyFilter() *addressfilter.Filter {
	f := c.Network.Filter()
	if !c.Proxies.AllowLocal {
		return f
	}
	f, _ = f.With(addressfilter.Local()...) // never fails
	return f
}

// Workers says how many tasks run at once, and where.
type Workers struct {
	Concurrency int           `yaml:"concurrency" range:"1 256" reload:"yes"`
	Processes   int           `yaml:"processes" range:"0 64"`
	PingTimeout time.Duration `yaml:"ping_timeout" range:"100ms 1m"`
	LogFile     string        `yaml:"log_file"`
	Metrics     string        `yaml:"metrics_listen" rule:"address" zero:"nowhere"`
	MemoryLimit int           `yaml:"memory_limit_mb" range:"64 1048576" zero:"GOMEMLIMIT, or four fifths of the memory of the container"`
}

// Queue says how the items of the work queue are handed out. Its names and
// units are those that users of the queue know.
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
}

// HostInterval is the least time between two requests to a host.
func (q Queue) HostInterval() time.Duration {
	return time.Duration(q.HostIntervalSeconds * float64(time.Second))
}

// LeaseTTL is how long a lease lasts without a heartbeat.
func (q Queue) LeaseTTL() time.Duration { return time.Duration(q.LeaseTTLSeconds) * time.Second }

// Heartbeat is how often leases are renewed.
func (q Queue) Heartbeat() time.Duration { return time.Duration(q.HeartbeatSeconds) * time.Second }

// RetryBackoff is the wait before the first retry; it doubles from there.
func (q Queue) RetryBackoff() time.Duration {
	return time.Duration(q.RetryBackoffSeconds) * time.Second
}

// Jitter is the most that is added to a wait at random.
func (q Queue) Jitter() time.Duration { return time.Duration(q.JitterSeconds) * time.Second }

// Proxies says from which sources proxies are collected and how many are enough.
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

// Serve says how muster proxies serve uses the pool.
type Serve struct {
	Wait             time.Duration `yaml:"wait" range:"100ms 1h"`
	Tries            int           `yaml:"tries" range:"1 20"`
	ConnectTimeout   time.Duration `yaml:"connect_timeout" range:"100ms 5m"`
	HandshakeTimeout time.Duration `yaml:"handshake_timeout" range:"100ms 5m"`
	FirstByteTimeout time.Duration `yaml:"first_byte_timeout" range:"100ms 1h"`
}

// FallbackAuto is the proxies.fallback that fails where there are sources of
// proxies, and where there are none goes direct while the pool is empty.
const FallbackAuto = "auto"

// PoolFallback is the fallback of a request that asks the pool, with which auto
// means fail: whether to go there at all is decided before.
func PoolFallback(fallback string) string {
	if fallback == FallbackAuto {
		return "fail"
	}
	return fallback
}

// HasSources reports whether there are sources of proxies.
func (p Proxies) HasSources() bool { return len(p.Sources) > 0 || p.Public }

// MaxListBytes is how large a list may be.
func (p Proxies) MaxListBytes() int64 { return int64(p.MaxListMB) << 20 }

// Unproxied reports whether the settings name neither sources of proxies nor a
// fallback without them.
func (p Proxies) Unproxied() bool { return p.Fallback == FallbackAuto && !p.HasSources() }

// CanCheck reports whether proxies can be checked: by a judge that they can
// reach, or because they are on this machine.
func (p Proxies) CanCheck() bool {
	return len(p.Judges) > 0 || p.AllowLocal
}

// Sites says what is scraped, when, and where the records go.
type Sites struct {
	Dir      string            `yaml:"dir" reload:"yes"`
	Names    []string          `yaml:"names" rule:"site" reload:"yes"`
	Schedule map[string]string `yaml:"schedule" rule:"cron" reload:"yes"`
	Out      string            `yaml:"out"`
	Parallel bool              `yaml:"parallel" reload:"yes"`
	MaxPages int               `yaml:"max_pages_at_once" range:"1 1000000" zero:"as many as there are workers"`
	Sinks    []string          `yaml:"sinks" secret:"url"`
	Secret   string            `yaml:"webhook_secret" secret:"all" rule:"secret"`
}

// Wait says how the end of a job is awaited. A job of n chunks may take
// ⌈n / workers⌉ × PerChunk × Buffer, but at least Floor. A scrape that makes
// progress at least once in Unknown is awaited however long it takes.
type Wait struct {
	Poll     time.Duration `yaml:"poll" range:"10ms 10m" reload:"yes"`
	Timeout  time.Duration `yaml:"timeout" range:"1s 168h" zero:"reckoned from the number of chunks" reload:"yes"`
	PerChunk time.Duration `yaml:"per_chunk" range:"1s 24h" reload:"yes"`
	Buffer   float64       `yaml:"buffer" range:"1 10" reload:"yes"`
	Floor    time.Duration `yaml:"floor" range:"1s 168h" reload:"yes"`
	Unknown  time.Duration `yaml:"unknown" range:"1s 168h" reload:"yes"`
	Warn     time.Duration `yaml:"warn" range:"1s 24h" reload:"yes"`
}

// API says where and to whom the HTTP interface and the web pages are served.
type API struct {
	Listen   string   `yaml:"listen" rule:"address"`
	Enabled  bool     `yaml:"enabled"`
	ReadOnly bool     `yaml:"read_only"`
	Keys     []string `yaml:"keys" secret:"all" reload:"yes"`
	Hosts    []string `yaml:"hosts" reload:"yes"`

	Rate      float64       `yaml:"rate" range:"0 1000000"`
	Burst     int           `yaml:"burst" range:"1 1000000"`
	CORS      []string      `yaml:"cors" rule:"origins"`
	AuditKeep time.Duration `yaml:"audit_keep" range:"1h 87600h"`
	JWT       JWT           `yaml:"jwt"`
}

// Jobs says how jobs of pipelines run, and what is kept of them.
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

// MaxDocumentBytes is how large a document may be.
func (j Jobs) MaxDocumentBytes() int64 { return int64(j.MaxDocumentMB) << 20 }

// Agents says which agents there are without registration, and where work may
// be pushed to.
type Agents struct {
	Allow       []string      `yaml:"allow" rule:"urls" reload:"yes"`
	Static      []Agent       `yaml:"static" secret:"all" reload:"yes"`
	HealthEvery time.Duration `yaml:"health_every" range:"1s 1h" reload:"yes"`
}

// Shutdown says how long an end may take.
type Shutdown struct {
	Drain time.Duration `yaml:"drain" range:"0s 24h"`
}

// Default returns the settings without a file, environment or flags.
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
		Tracing: defaultTracing(),
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
			Listen: "127.0.0.1:8000", Enabled: true, Rate: 1000, Burst: 2000, AuditKeep: 2160 * time.Hour,
			JWT: JWT{RoleClaim: "role", Leeway: 30 * time.Second},
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

// WorkerLog is the log file of worker processes.
func (c Config) WorkerLog() string {
	return cmp.Or(c.Workers.LogFile, filepath.Join(c.DataDir, "logs", "worker.log"))
}

// Records is the folder where records go.
func (c Config) Records() string {
	return cmp.Or(c.Sites.Out, filepath.Join(c.DataDir, "records"))
}

// Definitions is the folder of the user's definitions of sites.
func (c Config) Definitions() string {
	return cmp.Or(c.Sites.Dir, filepath.Join(c.DataDir, "sites"))
}

// Pipelines is the folder of the definitions of pipelines.
func (c Config) Pipelines() string {
	return cmp.Or(c.Jobs.Pipelines, filepath.Join(c.DataDir, "pipelines"))
}

// Documents is the folder where the documents of jobs are stored.
func (c Config) Documents() string {
	return cmp.Or(c.Jobs.Documents, filepath.Join(c.DataDir, "documents"))
}
