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

// withAPI calls fn with the API of --server, or of the orchestrator that runs on the data directory. Without either, the
// command serves the API to itself, on the Redis of the data directory.
func withAPI(env environment, c *cli.Context, fn func(scope) error) error {
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
func onServer(env environment, c *cli.Context, api *client.Client, fn func(scope) error) error {
	display := env.display()
	defer display.Close()
	return fn(scope{Context: c, ctx: c.Context, env: env, api: api, display: display})
}

// withOwnAPI calls fn with the API in this process.
func withOwnAPI(env environment, c *cli.Context, loaded *config.Loaded, fn func(scope) error) error {
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
		text = append(text, cmp.Or(name, f.Location)+": "+f.Message)
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
