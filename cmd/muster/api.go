package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/api/client"
	"muster/orchestrator/config"
	"muster/orchestrator/monitor"
	"muster/tasks/tasktype"
)

// apiKeyVariable is the environment variable with the key for the server of --server.
const apiKeyVariable = "MUSTER_API_KEY"

// withAPI calls fn with the API of --server, or of the orchestrator that runs on the data directory. Without either, the
// command serves the API to itself, on the Redis of the data directory.
func withAPI(env environment, c *cli.Context, fn func(scope) error) error {
	if server := c.String("server"); c.IsSet("server") {
		for _, name := range []string{"data-dir", "redis"} {
			if c.IsSet(name) {
				return usageError{fmt.Errorf("--server and --%s exclude each other", name)}
			}
		}
		key, _ := env.getenv(apiKeyVariable)
		api, err := client.New(client.Config{URL: server, Key: key})
		if err != nil {
			return usageError{fmt.Errorf("--server: %w", err)}
		}
		return onServer(env, c, api, fn)
	}
	loaded, err := loadSources(env, c, config.Sources{Default: quietly})
	if err != nil {
		return err
	}
	api, err := orchestrator.LocalAPI(c.Context, loaded.Config)
	if err != nil {
		return err
	}
	if api != nil {
		return onServer(env, c, api, fn)
	}
	return withOwnAPI(env, c, loaded, fn)
}

// onServer calls fn with the API of another process.
func onServer(env environment, c *cli.Context, api *client.Client, fn func(scope) error) error {
	display := env.display()
	defer display.Close()
	return fn(scope{Context: c, ctx: c.Context, env: env, api: api, display: display})
}

// withOwnAPI calls fn with the API in this process.
func withOwnAPI(env environment, c *cli.Context, loaded *config.Loaded, fn func(scope) error) error {
	return withSystem(env, c, loaded, true, func(ctx context.Context, o *orchestrator.Orchestrator, display *monitor.Display) error {
		if o.Redis().Owned() {
			fmt.Fprintf(env.stderr, "no orchestrator is running on %s: started its Redis for this command\n", loaded.DataDir)
		}
		api, err := o.APIClient()
		if err != nil {
			return err
		}
		return fn(scope{Context: c, ctx: ctx, env: env, api: api, own: o, display: display})
	})
}

// hasCode reports whether an error is a problem of the API with a code.
func hasCode(err error, code string) bool {
	p, ok := errors.AsType[*client.Problem](err)
	return ok && p.Code == code
}

// invalidRequest makes values that the server rejects wrong usage, named like the options of the command.
func invalidRequest(err error) error {
	p, ok := errors.AsType[*client.Problem](err)
	if !ok || p.Status != http.StatusBadRequest {
		return err
	}
	var text []string
	for _, f := range p.Errors {
		_, name, _ := strings.Cut(f.Location, ".")
		text = append(text, strings.TrimPrefix(name+": "+f.Message, ": "))
	}
	return usageError{errors.New(cmp.Or(strings.Join(text, "\n"), p.Detail))}
}

// showPage prints a list of the API: with --json as the API responds, otherwise as a table with a head of words, in which _ is
// a space, or none if it is empty.
func showPage[T any](s scope, list []T, none, head string, row func(T) []any) error {
	switch {
	case s.Bool("json"):
		return printJSON(s.env.stdout, client.Page[T]{Data: list})
	case len(list) == 0:
		fmt.Fprintln(s.env.stdout, none)
		return nil
	}
	t := newTable(s.env.stdout, head)
	for _, item := range list {
		t.row(row(item)...)
	}
	return t.flush()
}

// scope is a running command that calls the HTTP API.
type scope struct {
	*cli.Context // its arguments and flags
	ctx          context.Context
	env          environment
	api          *client.Client
	own          *orchestrator.Orchestrator // serves the API in this process; nil: another process serves it
	display      *monitor.Display
}

// apiCommand makes c a command that calls the HTTP API; see withAPI. Arguments and flags set the fields of In, the input of an
// operation: a path parameter is an argument, and a query parameter is a flag with its name. The tag cli gives another name
// with an optional default, as in cli:"queue=default", or "arg" for an argument, "args" for the other arguments, and "-" for
// a field that is not set. Fields of a body need the tag. The flags of c win over flags of fields. If the arguments are a
// list of path parameters, fn is called for each.
func apiCommand[In any](env environment, c *cli.Command, fn func(scope, In) error) *cli.Command {
	params := paramsOf(reflect.TypeFor[In](), nil)
	c.Flags = append(c.Flags, programFlag("server"))
	for _, p := range params {
		if f := p.flag(); f != nil && !hasFlag(c, p.name) {
			c.Flags = append(c.Flags, f)
		}
	}
	many := len(params) > 0 && params[0].field.Tag.Get("path") != "" && len(strings.Fields(c.ArgsUsage)) == 1 && strings.HasSuffix(c.ArgsUsage, "…")
	c.Action = func(c *cli.Context) error {
		groups := [][]string{c.Args().Slice()}
		if id := c.String("job-id"); id != "" {
			groups[0] = append(groups[0], id)
		}
		if many {
			groups = slices.Collect(slices.Chunk(groups[0], 1))
		}
		inputs := make([]In, len(groups))
		for i, args := range groups {
			for _, p := range params {
				if err := p.set(env, c, reflect.ValueOf(&inputs[i]).Elem(), &args); err != nil {
					return usageError{err}
				}
			}
		}
		return withAPI(env, c, func(s scope) error {
			if d := c.Duration("timeout"); c.Bool("wait") && d > 0 {
				var cancel context.CancelFunc
				s.ctx, cancel = context.WithTimeoutCause(s.ctx, d, timeoutError{d})
				defer cancel()
			}
			return forEach(s, inputs, func(in In) error { return fn(s, in) })
		})
	}
	return c
}

// forEach calls fn for each element until the command is interrupted, and returns all errors.
func forEach[T any](s scope, list []T, fn func(T) error) error {
	var errs []error
	for _, one := range list {
		if errs = append(errs, invalidRequest(fn(one))); s.ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// list makes c a command that prints the elements of a list; see showPage.
func list[In, T any](env environment, c *cli.Command, op client.Operation[In, client.Page[T]], none, head string, row func(T) []any) *cli.Command {
	c.Flags = append(c.Flags, jsonFlag())
	return apiCommand(env, c, func(s scope, in In) error {
		return printAll(s, op, in, none, head, row)
	})
}

// printAll prints the elements of a list, at most --limit if the command has this flag; see showPage.
func printAll[In, T any](s scope, op client.Operation[In, client.Page[T]], in In, none, head string, row func(T) []any) error {
	list, err := client.All(s.ctx, s.api, op, in, s.Int("limit"))
	if err != nil {
		return err
	}
	return showPage(s, list, none, head, row)
}

// act makes c a command that calls an operation and prints what it has done: with --json as the API responds.
func act[In, Out any](env environment, c *cli.Command, op client.Operation[In, Out], done func(In, Out) string) *cli.Command {
	if reflect.TypeFor[Out]() != reflect.TypeFor[client.None]() {
		c.Flags = append(c.Flags, jsonFlag())
	}
	return apiCommand(env, c, func(s scope, in In) error {
		out, err := op.Call(s.ctx, s.api, in)
		return showDone(s, out, err, "%s", done(in, out))
	})
}

// param is a field of an input that a command line sets.
type param struct {
	field       reflect.StructField
	at          []int  // its index
	name, value string // of the flag, or "arg" or "args"; and its default
}

// paramsOf returns the fields of a struct that a command line sets.
func paramsOf(t reflect.Type, at []int) (params []param) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("cli")
		query, _, _ := strings.Cut(f.Tag.Get("query"), ",")
		switch here := append(slices.Clip(at), i); {
		case f.Anonymous || f.Name == "Body":
			params = append(params, paramsOf(f.Type, here)...)
			continue
		case tag == "" && f.Tag.Get("path") != "":
			tag = "arg"
		case tag == "" && query != "cursor":
			tag = strings.ReplaceAll(query, "_", "-")
		}
		if tag != "" && tag != "-" {
			name, value, _ := strings.Cut(tag, "=")
			params = append(params, param{f, append(slices.Clip(at), i), name, cmp.Or(value, f.Tag.Get("default"))})
		}
	}
	return params
}

// flag returns the flag of the field; nil for an argument.
func (p param) flag() cli.Flag {
	if p.name == "arg" || p.name == "args" {
		return nil
	}
	usage := p.field.Tag.Get("doc")
	if enum := p.field.Tag.Get("enum"); enum != "" {
		usage = strings.TrimPrefix(usage+"; one of "+strings.ReplaceAll(enum, ",", ", "), "; ")
	}
	switch p.field.Type.Kind() {
	case reflect.Bool:
		return &cli.BoolFlag{Name: p.name, Usage: usage}
	case reflect.Int:
		n, _ := strconv.Atoi(p.value)
		return &cli.IntFlag{Name: p.name, Usage: usage, Value: n}
	case reflect.Slice, reflect.Map:
		return &cli.StringSliceFlag{Name: p.name, Usage: usage}
	}
	return &cli.StringFlag{Name: p.name, Usage: usage, Value: p.value}
}

// set sets the field of an input to the next of args or to the value of its flag.
func (p param) set(env environment, c *cli.Context, in reflect.Value, args *[]string) (err error) {
	var words []string
	switch {
	case p.name == "args":
		words, *args = *args, nil
	case p.name == "arg":
		words, *args = (*args)[:min(len(*args), 1)], (*args)[min(len(*args), 1):]
	case p.field.Type.Kind() == reflect.Slice || p.field.Type.Kind() == reflect.Map:
		words = c.StringSlice(p.name)
	case c.IsSet(p.name) || p.value != "":
		words = []string{fmt.Sprint(c.Value(p.name))}
	}
	if len(words) == 0 {
		return nil
	}
	for _, i := range p.at {
		if in.Kind() == reflect.Pointer {
			if in.IsNil() {
				in.Set(reflect.New(in.Type().Elem()))
			}
			in = in.Elem()
		}
		in = in.Field(i)
	}
	var value any
	switch in.Interface().(type) {
	case bool:
		value = words[0] == "true"
	case int:
		n := c.Int(p.name)
		if least, _ := strconv.Atoi(p.field.Tag.Get("minimum")); n < least && c.IsSet(p.name) {
			return fmt.Errorf("--%s %d: use %d or more", p.name, n, least)
		}
		if most, _ := strconv.Atoi(p.field.Tag.Get("maximum")); p.name == "limit" && most > 0 { // of a page
			n = min(n, most)
		}
		value = n
	case time.Time, *time.Time:
		var at time.Time
		if at, err = timeOf("--"+p.name, words[0], time.Now()); in.Kind() == reflect.Pointer {
			value = &at
		} else {
			value = at
		}
	case []string:
		if query := p.field.Tag.Get("query"); query != "" && !strings.HasSuffix(query, ",explode") {
			words = strings.FieldsFunc(strings.Join(words, ","), isComma)
		}
		value = words
	case map[string]string:
		value, err = tasktype.ParseLabels(words)
	case map[string]json.RawMessage:
		value, err = inputsOf(words)
	case map[string][]string:
		value = dropped(words)
	case client.Object:
		value, err = objectOf(env, strings.ToLower(p.field.Name), words[0])
	case json.RawMessage:
		value, err = valueOf(env, strings.ToLower(p.field.Name), words[0])
	default:
		value = words[0]
	}
	if err == nil {
		in.Set(reflect.ValueOf(value).Convert(in.Type()))
	}
	return err
}

// timeOf reads a time: in RFC 3339, a date in UTC, or a duration after now; of --since and --until before now.
func timeOf(name, text string, now time.Time) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return time.Time{}, usageError{fmt.Errorf("%s %q: use a time such as %s, a date, or a duration such as 2h", name, text, now.Format(time.RFC3339))}
	}
	if name == "--since" || name == "--until" {
		d = -d
	}
	return now.Add(d), nil
}

// hasFlag reports whether a command has a flag with a name.
func hasFlag(c *cli.Command, name string) bool {
	return slices.ContainsFunc(c.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
}
