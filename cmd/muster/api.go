package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/api/client"
	"muster/orchestrator/config"
	"muster/orchestrator/monitor"
)

// apiKeyVariable is the environment variable with the key for the server of --server.
const apiKeyVariable = "MUSTER_API_KEY"

// serverFlag is for commands that call the HTTP API.
func serverFlag() cli.Flag {
	return &cli.StringFlag{Name: "server", Usage: "call the orchestrator at `URL`, with the key in " + apiKeyVariable}
}

// apiScope is the environment of a command that calls the HTTP API.
type apiScope struct {
	api     *client.Client
	own     *orchestrator.Orchestrator // serves the API in this process; nil: another process serves it
	display *monitor.Display
	env     environment
}

// onAPI returns the action of a command that calls the HTTP API, with least to most arguments; -1 means any number. The API
// belongs to --server, or to the orchestrator that runs on the data directory. Without either, the command serves the API
// to itself, on the Redis of the data directory.
func onAPI(env environment, least, most int, fn func(context.Context, *cli.Context, *client.Client) error) cli.ActionFunc {
	return onScope(env, least, most, func(ctx context.Context, c *cli.Context, s apiScope) error { return fn(ctx, c, s.api) })
}

// onScope is onAPI for a command that needs more than the client.
func onScope(env environment, least, most int, fn func(context.Context, *cli.Context, apiScope) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := arguments(c, least, most); err != nil {
			return err
		}
		return invalidRequest(withAPI(env, c, fn))
	}
}

func withAPI(env environment, c *cli.Context, fn func(context.Context, *cli.Context, apiScope) error) error {
	if server, ok := flagValue(c, "server"); ok {
		for _, name := range []string{"data-dir", "redis"} {
			if _, both := flagValue(c, name); both {
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
	loaded, err := loadConfig(env, c)
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
func onServer(env environment, c *cli.Context, api *client.Client, fn func(context.Context, *cli.Context, apiScope) error) error {
	display, err := newDisplay(env, c)
	if err != nil {
		return err
	}
	defer display.Close()
	return fn(c.Context, c, apiScope{api: api, display: display, env: env})
}

// withOwnAPI calls fn with the API in this process.
func withOwnAPI(env environment, c *cli.Context, loaded *config.Loaded, fn func(context.Context, *cli.Context, apiScope) error) error {
	if _, ok := flagValue(c, "log-level"); !ok {
		loaded.Log.Level = "warn"
	}
	return withSystem(env, c, loaded, true, func(ctx context.Context, o *orchestrator.Orchestrator, display *monitor.Display) error {
		if o.Redis().Owned() {
			fmt.Fprintf(env.stderr, "no orchestrator is running on %s: started its Redis for this command\n", loaded.DataDir)
		}
		api, err := o.APIClient()
		if err != nil {
			return err
		}
		return fn(ctx, c, apiScope{api: api, own: o, display: display, env: env})
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
		text = append(text, cmp.Or(name, f.Location)+": "+f.Message)
	}
	return usageError{errors.New(cmp.Or(strings.Join(text, "\n"), p.Detail))}
}

// listAll is the action of a command that lists what an operation returns; see showPage.
func listAll[T any](env environment, op client.Operation[client.None, client.Page[T]], none string, columns []string, row func(T) []string, less ...string) cli.ActionFunc {
	return onAPI(env, 0, 0, func(ctx context.Context, c *cli.Context, api *client.Client) error {
		list, err := client.All(ctx, api, op, client.None{}, 0)
		if err != nil {
			return err
		}
		return showPage(env, c, list, none, columns, row, less...)
	})
}

// showPage prints a list of the API: with --json as the API responds, otherwise as a table, or none if it is empty. A narrow
// terminal omits the columns less.
func showPage[T any](env environment, c *cli.Context, list []T, none string, columns []string, row func(T) []string, less ...string) error {
	switch {
	case c.Bool("json"):
		return printJSON(env.stdout, client.Page[T]{Data: list})
	case len(list) == 0:
		fmt.Fprintln(env.stdout, none)
		return nil
	}
	t := newTable(env.stdout, columns...)
	t.less = less
	for _, item := range list {
		t.row(row(item)...)
	}
	return t.flush()
}
