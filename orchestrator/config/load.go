package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"muster/internal/trust"
)

// Kind is a kind of origin of a value.
type Kind string

// The kinds, in the order in which they override one another.
const (
	DefaultValue Kind = "default"
	File         Kind = "file"
	Environment  Kind = "environment"
	Flag         Kind = "flag"
)

// Origin says where a value came from.
type Origin struct {
	Kind  Kind   `json:"kind"`
	Where string `json:"where,omitempty"` // muster.yaml:3:1, MUSTER_DATA_DIR, --data-dir
}

// String is the origin in a few words.
func (o Origin) String() string {
	switch o.Kind {
	case DefaultValue, "":
		return "default"
	case Environment:
		return "environment " + o.Where
	case Flag:
		return "flag " + o.Where
	}
	return o.Where
}

// UsualFile is read when it is there and no other file is given.
const UsualFile = "muster.yaml"

// Sources is where Load looks.
type Sources struct {
	// File is the settings file. Defaults to $MUSTER_CONFIG, or else to
	// muster.yaml in the working folder if there is one.
	File string
	// Environ is the environment, as from os.Environ. Defaults to none.
	Environ []string
	// Flags are the settings given on the command line.
	Flags []FlagValue
	// Default changes the defaults, of a command that has others. Optional.
	Default func(*Config)
	// Check returns what else is wrong for the command, with getenv for the
	// variables of Environ. It is called with what could be read, also when that
	// has mistakes: all are reported together. Optional.
	Check func(c Config, getenv func(string) (string, bool)) []error

	again bool // a pipe has nothing more to read
}

// FlagValue is a setting given on the command line.
type FlagValue struct {
	Name  string // the flag as typed: --redis
	Path  string // redis.url
	Value string
}

// Loaded is a configuration and the origin of its values.
type Loaded struct {
	Config
	// Path is the file that was read; empty if none.
	Path string
	// Warnings are likely mistakes that are no errors.
	Warnings []string

	origins map[string]Origin
	src     Sources
	read    Config // what was read, also when Config was changed since
	files   files  // what was read, as it was just before
}

// Load reads and checks all settings. The error has a line for each mistake,
// with its place. It names every variable and every secret file that is missing.
func Load(src Sources) (*Loaded, error) {
	l, err := loadAll(src)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// loadAll is Load. With an error it returns what could be read.
func loadAll(src Sources) (*Loaded, error) {
	l := &Loaded{Config: Default(), origins: map[string]Origin{}, src: src, files: files{}}
	if src.Default != nil {
		src.Default(&l.Config)
	}
	env := environ(src.Environ)
	byPath := map[string]setting{}
	all := settings(&l.Config)
	for _, s := range all {
		byPath[s.path] = s
	}

	l.Path = cmp.Or(src.File, env["MUSTER_CONFIG"])
	l.files.look(cmp.Or(l.Path, UsualFile))
	if info := l.files[l.Path]; src.again && info != nil && info.Mode()&fs.ModeNamedPipe != 0 {
		return l, fmt.Errorf("read the settings: %s is a pipe, which can be read once; give a file", l.Path)
	}
	content, err := readFile(cmp.Or(l.Path, UsualFile))
	switch {
	case err == nil:
		l.Path = cmp.Or(l.Path, UsualFile)
	case l.Path == "" && errors.Is(err, fs.ErrNotExist):
	default:
		return l, fmt.Errorf("read the settings: %w", err)
	}
	r := &reader{file: l.Path, byPath: byPath, origins: l.origins, secrets: &secrets{env: env, files: l.files}}
	r.readYAML(content)
	errs := append(r.errs, l.readEnviron(env, all, r.secrets)...)
	errs = append(errs, l.addAgentURLs(src.Environ)...)
	for _, f := range src.Flags {
		s, ok := byPath[f.Path]
		if !ok {
			panic("flag " + f.Name + " is for no setting: " + f.Path)
		}
		if err := s.set(f.Value); err != nil {
			errs = append(errs, fmt.Errorf("flag %s: %w", f.Name, err))
			continue
		}
		l.origins[f.Path] = Origin{Kind: Flag, Where: f.Name}
	}
	errs = append(errs, l.check(all)...)
	if src.Check != nil {
		errs = append(errs, src.Check(l.Config, r.secrets.getenv)...)
	}
	l.files.look(l.folders()...)
	l.read = l.Config
	l.Warnings = append(l.Warnings, r.secrets.warnings...)
	return l, errors.Join(errs...)
}

// check returns what is wrong with the values, each with its place.
func (l *Loaded) check(all []setting) []error {
	var errs []error
	for _, s := range all {
		for _, err := range s.check() {
			errs = append(errs, l.located(s.path, err))
		}
	}
	if q := l.Queue; q.LeaseTTLSeconds <= q.HeartbeatSeconds {
		errs = append(errs, l.located("queue.lease_ttl_seconds", fmt.Errorf(
			"queue.lease_ttl_seconds: %d must be more than queue.heartbeat_seconds, which is %d: else leases end between heartbeats", q.LeaseTTLSeconds, q.HeartbeatSeconds)))
	}
	if l.Redis.URL != "" && (l.Redis.Mode == "child" || l.Redis.Mode == "embedded") {
		errs = append(errs, l.located("redis.mode", fmt.Errorf(
			"redis.mode: %s runs a Redis of our own, but redis.url gives the address of another; leave one of them out", l.Redis.Mode)))
	}
	if err := l.API.JWT.check(); err != nil {
		errs = append(errs, err)
	}
	return errs
}

// Given reports whether a setting was given rather than left at its default.
func (l *Loaded) Given(path string) bool {
	_, ok := l.origins[path]
	return ok
}

// located puts the place of a setting before an error on it.
func (l *Loaded) located(path string, err error) error {
	if o := l.origins[path]; o.Kind != "" {
		return fmt.Errorf("%s: %w", o, err)
	}
	return err
}

func readFile(path string) ([]byte, error) {
	f, err := trust.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s: a settings file has at most %d bytes", path, maxFile)
	}
	return b, err
}

// environ returns the variables by name. Of one that is there twice the last
// counts, as it does in a process.
func environ(list []string) map[string]string {
	out := map[string]string{}
	for _, e := range list {
		if name, value, ok := strings.Cut(e, "="); ok {
			out[name] = value
		}
	}
	return out
}

// readEnviron sets what the environment says.
func (l *Loaded) readEnviron(env map[string]string, all []setting, from *secrets) []error {
	var errs []error
	known := map[string]bool{"MUSTER_CONFIG": true, "MUSTER_TOKEN": true, "MUSTER_API_KEY": true} // no settings
	var names []string
	for _, s := range all {
		name := envName(s.path)
		known[name] = true
		names = append(names, name)
		value, ok := env[name]

		if s.tag.Get("secret") != "" {
			known[name+"_FILE"] = true
			if file := env[name+"_FILE"]; file != "" {
				if ok && value != "" {
					errs = append(errs, fmt.Errorf("environment: %s and %s_FILE are both set; leave one of them out", name, name))
					continue
				}
				content, err := from.read(file)
				if err != nil {
					errs = append(errs, fmt.Errorf("environment %s_FILE: %s: %w", name, s.path, err))
					continue
				}
				if s.isList() { // one in a line
					content = strings.ReplaceAll(content, "\n", ",")
				}
				name, value, ok = name+"_FILE", content, true
			}
		}
		// An empty variable is how a shell or a compose file says nothing.
		if !ok || value == "" {
			continue
		}
		if err := s.set(value); err != nil {
			errs = append(errs, fmt.Errorf("environment %s: %w", name, err))
			continue
		}
		l.origins[s.path] = Origin{Kind: Environment, Where: name}
	}

	for name := range env {
		if !strings.HasPrefix(name, "MUSTER_") || known[name] || strings.HasPrefix(name, "MUSTER_TEST_") {
			continue
		}
		hint := meant(name, names)
		if strings.HasPrefix(name, "MUSTER_DASHBOARD__") {
			hint = renamed
		}
		if name == "MUSTER_SITES__ALERTS" {
			hint = alertsMoved
		}
		// Only ours have a double underscore; others, as from Kubernetes for a
		// service named muster, are ignored.
		if strings.Contains(name, "__") {
			errs = append(errs, fmt.Errorf("environment %s: no such setting%s", name, hint))
		} else if hint != "" {
			l.Warnings = append(l.Warnings, fmt.Sprintf("environment %s is not used%s", name, hint))
		}
	}
	slices.Sort(l.Warnings)
	slices.SortFunc(errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return errs
}

// Setting is one value, for people.
type Setting struct {
	Path   string `json:"path"`
	Value  any    `json:"value"` // secrets masked; durations as text
	Origin Origin `json:"origin"`
	Env    string `json:"env"`
	Reload bool   `json:"reload"` // takes effect without a restart
}

// Settings lists all values in the order of the example file, secrets masked.
func (l *Loaded) Settings() []Setting {
	var out []Setting
	for _, s := range settings(&l.Config) {
		origin, ok := l.origins[s.path]
		if !ok {
			origin.Kind = DefaultValue
		}
		out = append(out, Setting{Path: s.path, Value: s.shown(), Origin: origin, Env: envName(s.path), Reload: s.reloads()})
	}
	return out
}
