package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"muster/internal/atomicfile"
	"muster/internal/nearest"
	"muster/internal/secret"
	"muster/internal/trust"
	"muster/internal/wrap"
	"muster/internal/yamlstrict"
)

// Kind is the type of source of a value.
type Kind string

// The kinds in ascending order of precedence.
const (
	DefaultValue Kind = "default"
	File         Kind = "file"
	Environment  Kind = "environment"
	Flag         Kind = "flag"
)

// Origin is the source of a value.
type Origin struct {
	Kind  Kind   `json:"kind"`
	Where string `json:"where,omitempty"` // muster.yaml:3:1, MUSTER_DATA_DIR, --data-dir
}

// String returns a short description of the origin.
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

// UsualFile is the default settings file. It is optional.
const UsualFile = "muster.yaml"

// Sources are the inputs of Load.
type Sources struct {
	// File is the settings file. Default: $MUSTER_CONFIG, or muster.yaml in the working directory if it exists.
	File string
	// Environ is the environment, in the format of os.Environ.
	Environ []string
	// Flags are settings from the command line.
	Flags []FlagValue
	// Default modifies the defaults for a command. Optional.
	Default func(*Config)
	// Check returns further errors for the command; getenv reads the variables of Environ. It is also called when c has
	// errors, so that all errors are reported together. Optional.
	Check func(c Config, getenv func(string) (string, bool)) []error

	again bool // set for reloads, in which a pipe is empty
}

// FlagValue is a setting from the command line.
type FlagValue struct {
	Name  string // the flag as typed: --redis
	Path  string // redis.url
	Value string
}

// Loaded is a configuration with the origins of its values.
type Loaded struct {
	Config
	// Path is the file that was read; empty if none.
	Path string
	// Warnings are probable mistakes that do not prevent loading.
	Warnings []string

	origins map[string]Origin
	src     Sources
	read    Config // the settings as loaded, before changes to Config
	files   files  // state of the files just before reading
}

// Load reads and validates all settings. The error has one line per mistake, with its position, and names all missing
// variables and secret files.
func Load(src Sources) (*Loaded, error) {
	l, err := loadAll(src)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// loadAll implements Load. It returns partial settings with an error.
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
		return l, fmt.Errorf("read the settings: cannot reload the pipe %s; use a file", l.Path)
	}
	content, err := readFile(cmp.Or(l.Path, UsualFile))
	switch {
	case err == nil:
		l.Path = cmp.Or(l.Path, UsualFile)
	case l.Path == "" && errors.Is(err, fs.ErrNotExist):
	default:
		return l, fmt.Errorf("read the settings: %w", err)
	}
	refs := &secrets{env: env, files: l.files}
	d := decoder(l.Path, byPath, refs)
	if env[expanded] != "" {
		d = decoder(l.Path, byPath, nil)
	}
	d.Decode(content, &l.Config)
	var errs []error
	for _, p := range d.Problems.Sorted() {
		errs = append(errs, p)
	}
	for path := range byPath {
		if p, ok := d.Places[path]; ok {
			l.origins[path] = Origin{Kind: File, Where: fmt.Sprintf("%s:%d:%d", l.Path, p.At.Line, p.At.Col)}
		}
	}
	errs = append(errs, l.readEnviron(env, all, refs)...)
	errs = append(errs, l.addAgentURLs(src.Environ)...)
	for _, f := range src.Flags {
		s, ok := byPath[f.Path]
		if !ok {
			errs = append(errs, fmt.Errorf("flag %s: unknown setting %q%s", f.Name, f.Path, nearest.Hint(f.Path, slices.Collect(maps.Keys(byPath)))))
			continue
		}
		if err := s.set(f.Value); err != nil {
			errs = append(errs, fmt.Errorf("flag %s: %w", f.Name, err))
			continue
		}
		l.origins[f.Path] = Origin{Kind: Flag, Where: f.Name}
	}
	errs = append(errs, l.check(all)...)
	if src.Check != nil {
		errs = append(errs, src.Check(l.Config, refs.getenv)...)
	}
	l.files.look(l.folders()...)
	l.read = l.Config
	l.Warnings = append(l.Warnings, refs.warnings...)
	return l, errors.Join(errs...)
}

// check validates all values. The errors include the position.
func (l *Loaded) check(all []setting) []error {
	var errs []error
	for _, s := range all {
		for _, err := range s.check() {
			errs = append(errs, l.located(s.path, err))
		}
	}
	if q := l.Queue; q.LeaseTTLSeconds <= q.HeartbeatSeconds {
		errs = append(errs, l.located("queue.lease_ttl_seconds", fmt.Errorf(
			"queue.lease_ttl_seconds: %d must be greater than queue.heartbeat_seconds (%d), because leases would expire between heartbeats", q.LeaseTTLSeconds, q.HeartbeatSeconds)))
	}
	if l.Redis.URL != "" && (l.Redis.Mode == "child" || l.Redis.Mode == "embedded") {
		errs = append(errs, l.located("redis.mode", fmt.Errorf(
			"redis.mode: %s starts a Redis, but redis.url is also set; remove one of them", l.Redis.Mode)))
	}
	if err := l.API.JWT.Check(); err != nil {
		errs = append(errs, err)
	}
	return errs
}

// IsSet reports whether a setting has an explicit value.
func (l *Loaded) IsSet(path string) bool {
	_, ok := l.origins[path]
	return ok
}

// located prefixes an error with the position of a setting.
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
	return io.ReadAll(io.LimitReader(f, yamlstrict.MaxSize+1)) // Decode rejects larger files
}

// environ returns the variables by name. The last definition of a variable wins, as in os.Getenv.
func environ(list []string) map[string]string {
	out := map[string]string{}
	for _, e := range list {
		if name, value, ok := strings.Cut(e, "="); ok {
			out[name] = value
		}
	}
	return out
}

// readEnviron applies the variables of the environment.
func (l *Loaded) readEnviron(env map[string]string, all []setting, from *secrets) []error {
	var errs []error
	known := map[string]bool{"MUSTER_CONFIG": true, "MUSTER_TOKEN": true, "MUSTER_API_KEY": true, expanded: true} // not settings
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
					errs = append(errs, fmt.Errorf("environment: %s and %s_FILE are both set; remove one of them", name, name))
					continue
				}
				content, err := from.read(file)
				if err != nil {
					errs = append(errs, fmt.Errorf("environment %s_FILE: %s: %w", name, s.path, err))
					continue
				}
				if s.isList() { // one per line
					content = strings.ReplaceAll(content, "\n", ",")
				}
				name, value, ok = name+"_FILE", content, true
			}
		}
		// In shells and compose files, an empty variable means unset.
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
		hint := nearest.Hint(name, names)
		for path, instead := range removed {
			if strings.HasPrefix(name+"__", envName(path)+"__") {
				hint = "; " + instead
			}
		}
		// Only our variables contain a double underscore. Others are ignored, for example the ones that Kubernetes sets for a
		// service named muster.
		if strings.Contains(name, "__") {
			errs = append(errs, fmt.Errorf("environment %s: unknown setting%s", name, hint))
		} else if hint != "" {
			l.Warnings = append(l.Warnings, fmt.Sprintf("environment %s is not used%s", name, hint))
		}
	}
	slices.Sort(l.Warnings)
	slices.SortFunc(errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return errs
}

// Setting is one value in display format.
type Setting struct {
	Path   string `json:"path"`
	Value  any    `json:"value"` // secrets masked, durations as strings
	Origin Origin `json:"origin"`
	Env    string `json:"env"`
	Reload bool   `json:"reload"` // takes effect without a restart
}

// Settings returns all values in the order of the example file, with secrets masked.
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

// secrets resolves references to secrets while the settings are loaded.
type secrets struct {
	env      map[string]string
	files    files // records the files that are read
	warnings []string
}

func (s *secrets) getenv(name string) (string, bool) {
	value, ok := s.env[name]
	return value, ok
}

// read returns the secret in a file.
func (s *secrets) read(path string) (string, error) {
	s.note(path)
	return secret.Read(path)
}

// expand replaces the references in a string.
func (s *secrets) expand(text string) (string, error) {
	for _, path := range secret.Files(text) {
		s.note(path)
	}
	return secret.Expand(text, s.getenv)
}

// note records that a file is read.
func (s *secrets) note(path string) {
	if _, known := s.files[path]; known {
		return
	}
	s.files.look(path)
	if secret.Exposed(path) {
		s.warnings = append(s.warnings, fmt.Sprintf("secret file %s is readable by all users; run chmod o-r %[1]s", path))
	}
}

// oneLine returns err with its messages joined on one line.
func oneLine(err error) error {
	return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
}

// MissingForSources returns an error for each proxy source that refers to variables or files that this process lacks.
func (c Config) MissingForSources(getenv func(string) (string, bool)) []error {
	var errs []error
	for _, s := range c.Proxies.Sources {
		for _, text := range append([]string{s.URL, s.Gateway, s.Auth}, sorted(s.Headers)...) {
			if _, err := secret.Expand(text, getenv); err != nil {
				errs = append(errs, fmt.Errorf("proxies.sources: source %s: %w", s, oneLine(err)))
			}
		}
	}
	return errs
}

// sorted returns the values of a map in the order of its keys.
func sorted(m map[string]string) []string {
	var values []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		values = append(values, m[name])
	}
	return values
}

// expanded is the variable of child processes whose settings file has values in place of references to secrets.
const expanded = "MUSTER_EXPANDED"

// Write atomically writes the settings to a private file, which contains secrets, for child processes that watch it.
func (c Config) Write(file string) error {
	b, err := yaml.MarshalWithOptions(c, yaml.JSON())
	if err == nil {
		err = atomicfile.WriteBytes(file, 0o600, b)
	}
	return wrap.Err(err, "write the settings of worker processes")
}

// Environ returns an environment with which Load in a child process reads the settings that Write has written to a file, and no others.
func Environ(file string) []string {
	env := []string{"MUSTER_CONFIG=" + file, expanded + "=1"}
	for _, s := range settings(&Config{}) { // masks the variables of the parent
		env = append(env, envName(s.path)+"=")
		if s.secret() {
			env = append(env, envName(s.path)+"_FILE=")
		}
	}
	return env
}
