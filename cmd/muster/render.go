package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/urfave/cli/v2"

	"muster/internal/secret"
	"muster/sites/render"
)

func renderCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "render",
		Usage: "serve a browser to the scrapes of other processes",
		Description: `Scrapes start a browser themselves if a definition has render: auto or always.
This command serves one to several workers: set render.url in the definitions to
its URL. It serves until interrupted.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "listen", Usage: "listen at `ADDR`; beyond loopback it needs --key-file", Value: "127.0.0.1:8090"},
			&cli.StringFlag{Name: "key-file", Usage: "require the key in `FILE`, which is render.key in definitions"},
			&cli.IntFlag{Name: "tabs", Usage: "render at most `N` pages at the same time", Value: 4},
		},
		Action: server(func(c *cli.Context) error { return serveBrowser(env, c) }),
	}
}

func serveBrowser(env environment, c *cli.Context) error {
	loaded, err := loadConfig(env, c)
	if err != nil {
		return err
	}
	if n := c.Int("tabs"); n < 1 || n > 100 {
		return usageError{fmt.Errorf("invalid --tabs %d: must be 1 to 100", n)}
	}
	logger := newLogger(env, env.stderr, loaded.Log)
	browser := render.New(render.Config{Browser: loaded.Sites.Browser, Tabs: c.Int("tabs"), Filter: loaded.Network.Filter(), Logger: logger})
	defer browser.Close()
	handler := &render.Handler{Renderer: browser, Logger: logger}
	setKey := func(text string) error {
		key, err := judgeKey(text)
		if err == nil {
			handler.Key.Store(&key)
		}
		return err
	}
	if path := c.String("key-file"); path != "" {
		text, err := secret.Read(path)
		if err == nil {
			err = setKey(text)
		}
		if err != nil {
			return usageError{fmt.Errorf("read the key in %s: %w", path, err)}
		}
	} else if !onLoopback(c.String("listen")) {
		return usageError{fmt.Errorf("%s can be reached from outside: set a key with --key-file, or listen on 127.0.0.1", c.String("listen"))}
	}
	if err := browser.Check(); err != nil {
		return err
	}
	l, err := net.Listen("tcp", c.String("listen"))
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	outliveReaders()
	defer env.watchKey(c.Context, c.String("key-file"), setKey)()
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(c.Context, func() { _ = server.Close() })()
	fmt.Fprintf(env.stderr, "renderer: http://%s/render\n", l.Addr())
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
