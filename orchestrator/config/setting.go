package config

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"muster/internal/addressfilter"
	"muster/internal/nearest"
	hooks "muster/internal/webhook"
	"muster/internal/yamlstrict"
	"muster/jobs/agent"
	"muster/orchestrator/access"
	"muster/orchestrator/archive"
	"muster/orchestrator/webhook"
	"muster/sites/sink"
	"muster/tasks"
)

// setting is one leaf of a Config: a path and a field.
type setting struct {
	path string
	tag  reflect.StructTag
	v    reflect.Value // settable
}

// settings returns the leaves of c in declaration order.
func settings(c *Config) []setting {
	var out []setting
	var walk func(prefix string, v reflect.Value)
	walk = func(prefix string, v reflect.Value) {
		for i := range v.NumField() {
			field := v.Type().Field(i)
			path := prefix + field.Tag.Get("yaml")
			if field.Type.Kind() == reflect.Struct {
				walk(path+".", v.Field(i))
				continue
			}
			out = append(out, setting{path: path, tag: field.Tag, v: v.Field(i)})
		}
	}
	walk("", reflect.ValueOf(c).Elem())
	return out
}

// reloads reports whether a new value takes effect without a restart.
func (s setting) reloads() bool { return s.tag.Get("reload") == "yes" }

// secret reports whether the value contains a secret.
func (s setting) secret() bool { return s.tag.Get("secret") != "" }

// keepsReferences reports whether references to secrets remain in the value. The worker that reads a proxy source expands them.
func (s setting) keepsReferences() bool { return s.v.Type() == reflect.TypeFor[[]Source]() }

// envName returns the environment variable for a path.
func envName(path string) string {
	return "MUSTER_" + strings.ToUpper(strings.ReplaceAll(path, ".", "__"))
}

// set parses text from a variable or flag and assigns the value.
func (s setting) set(text string) error {
	d := decoder("", map[string]setting{s.path: s}, nil)
	sources, isSources := s.v.Addr().Interface().(*[]Source)
	switch {
	case isSources && !strings.HasPrefix(strings.TrimSpace(text), "["):
		*sources = SourcesAt(split(text, ",")...)
	case s.isObjects():
		doc := d.Document([]byte(text))
		if doc == nil || d.IsScalar(doc) { // the problems may contain secrets
			keys := strings.Join(yamlstrict.KeysOf(s.v.Type().Elem()), ", ")
			return fmt.Errorf("%s: invalid list: use JSON such as [{\"url\": …}] with the keys %s", s.path, keys)
		}
		d.Into(doc, s.v.Addr().Interface(), s.path)
	case s.isList():
		s.v.Set(reflect.ValueOf(split(text, ",")))
	case s.isMap():
		return s.setMap(text)
	default:
		d.Into(&ast.StringNode{Value: text}, s.v.Addr().Interface(), s.path)
	}
	if len(d.Problems) > 0 {
		return d.Problems
	}
	return nil
}

// isObjects reports whether the value is a list of mappings.
func (s setting) isObjects() bool { return s.isList() && s.v.Type().Elem().Kind() == reflect.Struct }

func split(text, sep string) []string {
	var out []string
	for part := range strings.SplitSeq(text, sep) {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// setMap parses a map from one line: a:1,b:2 for numbers and durations, a=text;b=text for strings, which may contain commas
// and colons.
func (s setting) setMap(text string) error {
	sep, is := ",", ":"
	if s.v.Type().Elem().Kind() == reflect.String {
		sep, is = ";", "="
	}
	out := reflect.MakeMap(s.v.Type())
	for _, part := range split(text, sep) {
		name, value, ok := strings.Cut(part, is)
		if !ok && s.tag.Get("secret") != "" {
			return fmt.Errorf("%s: invalid entry: use name%svalue", s.path, is)
		}
		if !ok {
			return fmt.Errorf("%s: invalid entry %q: use name%svalue", s.path, part, is)
		}
		name = strings.TrimSpace(name)
		if out.MapIndex(reflect.ValueOf(name)).IsValid() {
			return fmt.Errorf("%s: duplicate name %s", s.path, name)
		}
		elem := reflect.New(s.v.Type().Elem()).Elem()
		if err := (setting{path: s.path + "." + name, v: elem}).set(strings.TrimSpace(value)); err != nil {
			return err
		}
		out.SetMapIndex(reflect.ValueOf(name), elem)
	}
	s.v.Set(out)
	return nil
}

// isList and isMap report the kind of the value in a file.
func (s setting) isList() bool { return s.v.Kind() == reflect.Slice }
func (s setting) isMap() bool  { return s.v.Kind() == reflect.Map }

// check returns all errors of the value.
func (s setting) check() []error {
	var errs []error
	for _, problem := range slices.Concat(s.checkWord(), s.checkRange(), s.checkObjects(), s.checkRule()) {
		errs = append(errs, fmt.Errorf("%s: %w", s.path, problem))
	}
	return errs
}

// checkWord validates the value against the tag oneof.
func (s setting) checkWord() []error {
	words := strings.Fields(s.tag.Get("oneof"))
	if len(words) == 0 || slices.Contains(words, s.v.String()) {
		return nil
	}
	return []error{fmt.Errorf("invalid value %q: use one of %s%s", s.v.String(), strings.Join(words, ", "), nearest.Hint(s.v.String(), words))}
}

// checkRange validates numbers against the tag range. With the tag zero, 0 is valid too.
func (s setting) checkRange() []error {
	bounds := strings.Fields(s.tag.Get("range"))
	if len(bounds) != 2 {
		return nil
	}
	zero, or := s.tag.Get("zero"), ""
	if zero != "" {
		or = ", or 0 for " + zero
	}
	var errs []error
	for name, v := range s.numbers() {
		if zero != "" && v.IsZero() || within(v, bounds[0], bounds[1]) {
			continue
		}
		if name != "" {
			name += ": "
		}
		errs = append(errs, fmt.Errorf("%s%v is out of range; use %s to %s%s", name, v.Interface(), bounds[0], bounds[1], or))
	}
	return errs
}

func (s setting) checkObjects() []error {
	var errs []error
	switch list := s.v.Interface().(type) {
	case []Source:
		for _, source := range list {
			errs = append(errs, source.check()...)
		}
	case []agent.Static:
		return agent.CheckStatic(list)
	case []webhook.Static:
		return webhook.CheckStatic(list)
	}
	return errs
}

// rules validate a string, or each one of a list, by the tag rule.
var rules = map[string]func(text string) error{
	"required": func(text string) error {
		if strings.TrimSpace(text) == "" {
			return errors.New("must not be empty")
		}
		return nil
	},
	"address": func(text string) error {
		_, port, err := net.SplitHostPort(text)
		if err == nil {
			_, err = net.LookupPort("tcp", port)
		}
		if err != nil {
			return fmt.Errorf("invalid listen address %q: use host:port, for example 127.0.0.1:8000", text)
		}
		return nil
	},
	"addresses": func(text string) error {
		_, err := addressfilter.New(text)
		return err
	},
	"archive": archive.Check,
	"keys": func(text string) error {
		_, err := access.NewGate([]string{text}, nil, nil)
		return err
	},
	"redis": func(text string) error {
		_, err := tasks.ParseURL(text)
		return err
	},
	"sinks":     sink.Check,
	"collector": checkCollector,
	"urls":      agent.CheckURL,
	"origins":   checkOrigin,
	"secret":    hooks.CheckSecret,
	"site":      siteName,
	"queues":    checkQueueName,
}

// checkRule validates the value against the tag rule. The tag zero, with a meaning or empty, allows an empty string.
func (s setting) checkRule() []error {
	name := s.tag.Get("rule")
	var texts []string
	switch v := s.v.Interface().(type) {
	case map[string]string:
		if name == "headers" {
			return checkHeaders(v)
		}
		if name == "cron" {
			return checkSchedule(v)
		}
	case map[string]time.Duration:
		return checkKeepFor(v)
	case []string:
		texts = v
	case string:
		if _, optional := s.tag.Lookup("zero"); v != "" || !optional {
			texts = []string{v}
		}
	}
	var errs []error
	if rule, ok := rules[name]; ok {
		for _, text := range texts {
			if text == "" && s.isList() { // the decoder has reported it, or the missing secret in it
				continue
			}
			if err := rule(text); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errs
}

// queueName matches valid names of queues and webhooks.
var queueName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

func checkQueueName(name string) error {
	if !queueName.MatchString(name) {
		return fmt.Errorf("invalid queue name %.120q: use up to 100 letters, digits, dots, hyphens and underscores, beginning with a letter or digit", name)
	}
	return nil
}

// checkSchedule validates cron expressions by site.
func checkSchedule(entries map[string]string) []error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		if err := siteName(name); err != nil {
			errs = append(errs, err)
		}
		if entries[name] == "off" { // no schedule, whatever the definition has
			continue
		}
		if _, err := tasks.NextTick(entries[name], time.Now()); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errs
}

// siteName checks that a site name is valid in Redis keys.
func siteName(name string) error {
	if name == "" || len(name) > 100 || strings.ContainsAny(name, ": \t\r\n{}/") {
		return fmt.Errorf("invalid site name %q: remove colons, slashes, braces and spaces", name)
	}
	return nil
}

// numbers returns the value, or the values of a map by name.
func (s setting) numbers() map[string]reflect.Value {
	if !s.isMap() {
		return map[string]reflect.Value{"": s.v}
	}
	out := map[string]reflect.Value{}
	for _, key := range s.v.MapKeys() {
		out[key.String()] = s.v.MapIndex(key)
	}
	return out
}

func within(v reflect.Value, low, high string) bool {
	number := func(text string) float64 {
		if v.Type() == reflect.TypeFor[time.Duration]() {
			d, err := time.ParseDuration(text)
			if err != nil {
				panic(err)
			}
			return float64(d)
		}
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			panic(err)
		}
		return f
	}
	var f float64
	if v.CanInt() {
		f = float64(v.Int())
	} else {
		f = v.Float()
	}
	return f >= number(low) && f <= number(high) // false for NaN
}

// shown returns the value in display format, with secrets masked.
func (s setting) shown() any { return s.show(s.v) }

// show is shown for a part of the value.
func (s setting) show(v reflect.Value) any {
	switch part := v.Interface().(type) {
	case string:
		switch kind := s.tag.Get("secret"); {
		case kind == "all" && part != "":
			return masked
		case kind == "url":
			return maskURL(part)
		}
		return part
	case time.Duration:
		return short(part)
	case fmt.Stringer:
		return part.String()
	}
	switch v.Kind() {
	case reflect.Slice:
		out := make([]any, v.Len())
		for i := range out {
			out[i] = s.show(v.Index(i))
		}
		return out
	case reflect.Map:
		out := map[string]any{}
		for _, key := range v.MapKeys() {
			out[key.String()] = s.show(v.MapIndex(key))
		}
		return out
	}
	return v.Interface()
}

const masked = "xxxxx"

// maskURL masks the parts of a URL that may be secret: password and query.
func maskURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return masked
	}
	if u.RawQuery != "" {
		u.RawQuery = masked
	}
	return u.Redacted()
}

// short formats a duration without trailing zero units: 6h instead of 6h0m0s.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
