package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/internal/logctx"
	"muster/orchestrator"
	"muster/orchestrator/config"
	"muster/orchestrator/redisd"
	"muster/tasks"
	"muster/tasks/embedded"
)

// globalSettings can be set by flags of every command.
var globalSettings = []settingFlag{
	{"redis", "redis.url", "use the Redis at `URL`, as in redis://host:6379/0"},
	{"data-dir", "data_dir", "keep everything in `DIR`"},
	{"log-level", "log.level", "debug, info, warn or error"},
	{"log-format", "log.format", "auto, text or json"},
}

// settingFlag is a flag that sets a setting.
type settingFlag struct{ name, path, usage string }

// refusals are the reasons of commands that do not have a flag of the program. Every command has the others.
var refusals = map[string]string{
	"server": "the command does not call the HTTP API", "json": "the result of the command is not JSON", "limit": "the command has no such limit",
	"queue": "the command has no choice of a queue", "wait": "the command starts nothing that it could wait for", "timeout": "the command does not wait",
	"metrics-listen": "the HTTP interface has the metrics of muster start, at /metrics",
}

// programFlags returns the flags that are accepted before and after the name of a command: the one with a name, those that
// all commands have, or with "" also those that some commands have. They are new at each call: the library keeps state in them.
func programFlags(which string) []cli.Flag {
	flags := append([]cli.Flag{&cli.StringFlag{Name: "config", Usage: "read settings from `FILE`", DefaultText: config.UsualFile + ", if any"}}, flagsOf(globalSettings...)...)
	flags = append(flags,
		&cli.StringSliceFlag{Name: "setting", Usage: "set the setting `PATH=VALUE`, as in workers.concurrency=20; may be repeated"},
		&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "print results and errors only"},
		&cli.StringFlag{Name: "server", Usage: "call the orchestrator at `URL`, with the key in " + apiKeyVariable},
		&cli.BoolFlag{Name: "json", Usage: "output JSON"},
		&cli.IntFlag{Name: "limit", Usage: "at most `N` rows of a list, records of each site of a scrape, or artifacts of an import"},
		&cli.StringFlag{Name: "queue", Usage: "use the queue `NAME` of artifacts or tasks", DefaultText: "default", Value: "default"},
		&cli.BoolFlag{Name: "wait", Usage: "wait until the work has ended, and show it and its result; exit 1 if it failed"},
		&cli.DurationFlag{Name: "timeout", Usage: "wait at most `D`; the work continues", DefaultText: "for as long as it takes"},
		&cli.StringFlag{Name: "metrics-listen", Usage: "serve Prometheus metrics at `ADDRESS`, as in 127.0.0.1:9090; beyond loopback it needs a key"},
	)
	return slices.DeleteFunc(flags, func(f cli.Flag) bool {
		name := f.Names()[0]
		return which == "all" && refusals[name] != "" || which != "" && which != "all" && which != name
	})
}

// programFlag returns a flag of the program, for a command that can use it.
func programFlag(name string) cli.Flag { return programFlags(name)[0] }

// movedFlags maps flags of earlier versions to the settings that --setting has instead.
var movedFlags = map[string]string{
	"concurrency": "workers.concurrency", "max-pages": "sites.max_pages_at_once", "memory-limit": "workers.memory_limit_mb", "pipelines-dir": "jobs.pipelines", "read-only": "api.read_only",
	"at-once": "proxies.concurrency", "timeout": "proxies.check_timeout", "connect-timeout": "proxies.check_connect_timeout", "tries": "proxies.check_tries",
	"max-list-mb": "proxies.max_list_mb", "mmdb": "proxies.mmdb", "public": "proxies.public", "fallback": "proxies.fallback", "wait": "proxies.serve.wait",
	"listen": "api.listen", "out": "sites.out", "source": "proxies.sources", "sites-dir": "sites.dir", "worker-processes": "workers.processes", "browser": "sites.browser", "judge": "proxies.judges", "allow-local": "proxies.allow_local",
	"handshake-timeout": "proxies.serve.handshake_timeout", "first-byte-timeout": "proxies.serve.first_byte_timeout",
}

// removedFlags maps other flags of earlier versions to what replaces them.
var removedFlags = map[string]string{
	"watch":    "use watch(1), as in watch muster jobs list, or muster status --watch",
	"progress": "progress is bars on a terminal and lines elsewhere; --quiet omits it",
	"wide":     "use --json",
	"cursor":   "use --limit",

	"agents list --role": "use --json", "jobs items --item": "use muster jobs items JOB ITEM", "jobs retry --item": "use muster jobs retry JOB ITEM…", "jobs start --force": "use --dedupe allow",
	"sites init --out": "use muster sites init URL > FILE", "proxies list --https": "use --json", "proxies list --max-latency": "use --json",
	"queue run --content": "the content is in the data directory", "workflows get --archive": "the archive is read without it", "workflows get --result": "use --wait",
	"workflows output --node": "use muster workflows output ID NODE",
}

// movedTo returns the setting that replaces a flag of a command, or "".
func movedTo(command, flag string) string {
	path := movedFlags[flag]
	switch {
	case strings.HasPrefix(path, "proxies.") && !strings.HasPrefix(command, "muster proxies ") && command != "muster scrape":
		return ""
	case command == "muster proxies serve":
		return strings.Replace(path, "check_", "serve.", 1)
	}
	return path
}

// flagsOf returns the flags of settings.
func flagsOf(settings ...settingFlag) []cli.Flag {
	var flags []cli.Flag
	for _, s := range settings {
		flags = append(flags, &cli.StringFlag{Name: s.name, Usage: s.usage})
	}
	return flags
}

// loadConfig reads the settings of a command: the file, the environment, and
// the flags, given before or after the command's name.
func loadConfig(env environment, c *cli.Context, own ...settingFlag) (*config.Loaded, error) {
	return loadSources(env, c, config.Sources{}, own...)
}

// loadSources is loadConfig with additional sources.
func loadSources(env environment, c *cli.Context, src config.Sources, own ...settingFlag) (*config.Loaded, error) {
	src.Environ = env.environ
	src.File = c.String("config")
	if env.terminal() {
		src.Default = quietly
	}
	for _, s := range append(globalSettings[:len(globalSettings):len(globalSettings)], own...) {
		if c.IsSet(s.name) {
			src.Flags = append(src.Flags, config.FlagValue{Name: "--" + s.name, Path: s.path, Value: c.String(s.name)})
		}
	}
	for _, text := range c.StringSlice("setting") {
		path, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, usageError{fmt.Errorf("--setting %s: use PATH=VALUE", path)}
		}
		src.Flags = append(src.Flags, config.FlagValue{Name: "--setting", Path: path, Value: value})
	}
	loaded, err := config.Load(src)
	if err != nil {
		return nil, usageError{err}
	}
	return loaded, nil
}

// checkSecrets returns the check of commands that read proxies and fetch pages,
// of all sites or of those called names.
func checkSecrets(names ...string) func(config.Config, func(string) (string, bool)) []error {
	return func(cfg config.Config, getenv func(string) (string, bool)) []error {
		return orchestrator.MissingSecrets(cfg, getenv, names...)
	}
}

// logsJSON reports whether the log is JSON.
func logsJSON(env environment, cfg config.Log) bool {
	return cfg.Format == "json" || cfg.Format == "auto" && !env.terminal()
}

// quietly is for terminals, and for commands whose log has warnings only, unless
// log.level is set.
func quietly(c *config.Config) { c.Log.Level = "warn" }

// levelOf returns the level of a log: with --quiet it has errors only.
func (e environment) levelOf(cfg config.Log) slog.Level {
	var level slog.Level
	if err := level.UnmarshalText([]byte(strings.ToUpper(cfg.Level))); err != nil {
		level = slog.LevelInfo // the settings were checked
	}
	if screenOf(e.stderr).muted {
		level = max(level, slog.LevelError)
	}
	return level
}

// newLogger returns a logger that writes to w. It uses the level of cfg until
// the settings of the command are reloaded. Lines have the ids of their context. In JSON a duration is a number of
// milliseconds, and its name ends in _ms.
func newLogger(env environment, w io.Writer, cfg config.Log) *slog.Logger {
	level := env.level
	if level == nil {
		level = new(slog.LevelVar)
	}
	level.Set(env.levelOf(cfg))
	if screenOf(env.stderr).muted {
		w = raw(env.stderr) // without bars, lines need no coordination
	}
	opts := &slog.HandlerOptions{Level: level}
	if logsJSON(env, cfg) {
		opts.ReplaceAttr = func(_ []string, a slog.Attr) slog.Attr {
			if a.Value.Kind() == slog.KindDuration {
				return slog.Float64(a.Key+"_ms", float64(a.Value.Duration().Microseconds())/1e3)
			}
			return a
		}
		return slog.New(tasks.LogHandler(logctx.Handler(slog.NewJSONHandler(w, opts))))
	}
	opts.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.TimeKey {
			return slog.String(slog.TimeKey, a.Value.Time().Format("15:04:05.000"))
		}
		return a
	}
	return slog.New(tasks.LogHandler(logctx.Handler(slog.NewTextHandler(w, opts))))
}

// oneLine returns the first line of an error.
func oneLine(err error) string {
	if err == nil {
		return ""
	}
	line, _, more := strings.Cut(err.Error(), "\n")
	if more {
		line += " …"
	}
	return line
}

// jsonFlag is for commands with a result.
func jsonFlag() cli.Flag { return programFlag("json") }

func configCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "config",
		Usage:     "list every setting with its value and origin, or check them; secrets are masked",
		ArgsUsage: "[FILE]",
		Description: `RELOAD is yes for a setting that a running command takes over when its files
change, or at SIGHUP. Others take a restart.

With --check it lists all errors in the settings, or in FILE, and all missing variables
and files that the settings and the definitions of sites refer to. Then the exit code is 1.`,
		Flags: []cli.Flag{&cli.BoolFlag{Name: "check", Usage: "check the settings instead"}, jsonFlag()},
		Action: func(c *cli.Context) error {
			if c.Bool("check") {
				return checkConfig(env, c)
			}
			if c.Args().Present() {
				return usageError{errors.New("FILE is for muster config --check FILE; to list the settings with those of a file, use --config FILE")}
			}
			loaded, err := loadConfig(env, c)
			if err != nil {
				return err
			}
			settings := loaded.Settings()
			if c.Bool("json") {
				return printJSON(env.stdout, settings)
			}
			t := newTable(env.stdout, "SETTING VALUE RELOAD FROM")
			for _, s := range settings {
				reload := "restart"
				if s.Reload {
					reload = "yes"
				}
				t.row(s.Path, fmt.Sprint(s.Value), reload, s.Origin.String())
			}
			return t.flush()
		},
	}
}

// checkConfig checks the settings of the command, or of a file.
func checkConfig(env environment, c *cli.Context) error {
	var loaded *config.Loaded
	var err error
	if file := c.Args().First(); file != "" {
		loaded, err = config.Load(config.Sources{File: file, Environ: secretsOf(env), Check: checkSecrets()})
	} else {
		loaded, err = loadSources(env, c, config.Sources{Check: checkSecrets()})
	}
	if err != nil {
		if wrong := (usageError{}); errors.As(err, &wrong) {
			err = wrong.error // invalid settings are the result of the check, not wrong usage
		}
		return err
	}
	for _, w := range loaded.Warnings {
		fmt.Fprintln(env.stderr, "warning:", w)
	}
	if loaded.Path == "" {
		fmt.Fprintln(env.stdout, "ok: no file, defaults and environment")
	} else {
		fmt.Fprintf(env.stdout, "ok: %s\n", loaded.Path)
	}
	return nil
}

// secretsOf is the environment without settings: those in a file alone are checked.
func secretsOf(env environment) []string {
	return slices.DeleteFunc(slices.Clone(env.environ), func(e string) bool { return strings.HasPrefix(e, "MUSTER_") })
}

func storeCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "store", Usage: "the data of the embedded Redis",
		Subcommands: []*cli.Command{{
			Name: "copy", Usage: "copy the data directory's embedded Redis into a Redis server",
			Description: `Stop muster start and the workers first. The Redis must be empty, and later commands
need --redis URL, or redis.url in the settings. The data directory stays as it is.`,
			Flags: []cli.Flag{&cli.StringFlag{Name: "to", Usage: "the `URL` of the Redis, as for --redis"}},
			Action: func(c *cli.Context) error {
				if !c.IsSet("to") {
					return usageError{errors.New("--to is missing: name the Redis, for example --to redis://host:6379/0")}
				}
				loaded, err := loadConfig(env, c)
				if err != nil {
					return err
				}
				client, err := tasks.Connect(c.Context, c.String("to"))
				if err != nil {
					return err
				}
				defer func() { _ = client.Close() }()
				n, err := embedded.Copy(c.Context, filepath.Join(loaded.DataDir, "redis"), client.Redis())
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(env.stdout, "copied %d keys; continue with muster start --redis %s\n", n, redisd.Redact(c.String("to")))
				return err
			},
		}},
	}
}
