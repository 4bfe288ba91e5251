package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"muster/internal/addressfilter"
	"muster/internal/secret"
	"muster/proxies/probe"
	"muster/sites/render"
)

func judgeCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "judge",
		Usage: "serve the judge: a page that shows the request that a server receives from a proxy",
		Description: `A check sends a request through a proxy to the judge, which returns the request
as it arrived. It serves until interrupted. On loopback it serves proxies of this
machine; for others, run it at an address that they can reach, with a key
and with TLS on port 443, because most proxies open tunnels to no other port:

    muster judge --listen :80 --listen-tls :443 --key-file judge.key

On the machine that checks, set proxies.judges to its URL and
MUSTER_PROXIES__JUDGE_KEY_FILE to the file of its key.`,
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "listen", Usage: "listen on `ADDR` for plain http; may be repeated, for IPv6", Value: cli.NewStringSlice("127.0.0.1:8088")},
			&cli.StringFlag{Name: "listen-tls", Usage: "listen on `ADDR` for TLS; - for no TLS", DefaultText: "a free port"},
			&cli.IntFlag{Name: "tls-port", Usage: "proxies reach TLS at port `N`, which is forwarded to --listen-tls", DefaultText: "port of --listen-tls"},
			&cli.StringFlag{Name: "key-file", Usage: "sign responses with the key in `FILE`; required beyond loopback"},
		},
		Action: server(func(c *cli.Context) error {
			cfg := probe.JudgeConfig{Listen: c.StringSlice("listen"), ListenTLS: c.String("listen-tls")}
			if c.IsSet("tls-port") {
				if n := c.Int("tls-port"); n < 1 || n > 65535 {
					return usageError{fmt.Errorf("judge: invalid --tls-port %d: must be 1 to 65535", n)}
				}
				cfg.TLSPort = strconv.Itoa(c.Int("tls-port"))
			}
			if err := readKey(c.String("key-file"), useKey(func(key string) { cfg.Key = key })); err != nil {
				return err
			}
			for _, addr := range append(c.StringSlice("listen"), cfg.ListenTLS) {
				if addr != "" && addr != "-" && !onLoopback(addr) && cfg.Key == "" {
					return usageError{fmt.Errorf("%s can be reached from outside: give the judge a key with --key-file, or listen on 127.0.0.1", addr)}
				}
			}
			outliveReaders()
			judge, err := probe.StartJudge(cfg)
			if err != nil {
				return err
			}
			defer env.watchKey(c.Context, c.String("key-file"), useKey(judge.SetKey))()
			for _, url := range judge.URLs {
				fmt.Fprintf(env.stderr, "judge: %s\n", url)
			}
			if judge.TLSURL != "" {
				fmt.Fprintf(env.stderr, "judge: %s\n", judge.TLSURL)
			}
			if warning := tlsWarning(judge, cfg.TLSPort); warning != "" {
				fmt.Fprintln(env.stderr, "warning:", warning)
			}
			<-c.Context.Done()
			return judge.Close()
		}),
	}
}

// useKey returns a function that calls set with the key in the text of a file.
func useKey(set func(key string)) func(text string) error {
	return func(text string) error {
		key := strings.TrimSpace(text)
		if len(key) < 16 {
			return errors.New("it is shorter than 16 characters; make one with: openssl rand -hex 32")
		}
		set(key)
		return nil
	}
}

// readKey calls set with the text of a file of keys; not if path is empty.
func readKey(path string, set func(text string) error) error {
	if path == "" {
		return nil
	}
	text, err := secret.Read(path)
	if err == nil {
		err = set(text)
	}
	if err != nil {
		return usageError{fmt.Errorf("read the key in %s: %w", path, err)}
	}
	return nil
}

// tlsWarning is the warning of a judge that is reached from outside and has no TLS on port 443; "" if it has.
func tlsWarning(judge *probe.JudgeServer, port string) string {
	if !slices.ContainsFunc(judge.URLs, func(u string) bool { return !onLoopback(strings.TrimPrefix(u, "http://")) }) {
		return ""
	}
	const advice = "most proxies open tunnels to port 443 alone, so for them it stays unknown whether https gets through; use --listen-tls :443, or forward port 443 and use --tls-port 443"
	if judge.TLSURL == "" {
		return "this judge speaks no TLS: it stays unknown whether https gets through proxies"
	}
	if _, listening, _ := net.SplitHostPort(strings.TrimPrefix(judge.TLSURL, "https://")); cmp.Or(port, listening) != "443" {
		return fmt.Sprintf("TLS is on port %s: %s", cmp.Or(port, listening), advice)
	}
	return ""
}

// onLoopback reports whether only this machine can reach a listener on addr. Of
// names only localhost is trusted.
func onLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	return err == nil && addressfilter.IsLoopback(host)
}

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
		},
		Action: server(func(c *cli.Context) error { return serveBrowser(env, c) }),
	}
}

func serveBrowser(env environment, c *cli.Context) error {
	loaded, err := loadConfig(env, c)
	if err != nil {
		return err
	}
	logger := newLogger(env, env.stderr, loaded.Log)
	browser := render.New(render.Config{Browser: loaded.Sites.Browser, Filter: loaded.Network.Filter(), Logger: logger})
	defer browser.Close()
	handler := &render.Handler{Renderer: browser, Logger: logger}
	setKey := func(key string) { handler.Key.Store(&key) }
	if err := readKey(c.String("key-file"), useKey(setKey)); err != nil {
		return err
	}
	if c.String("key-file") == "" && !onLoopback(c.String("listen")) {
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
	defer env.watchKey(c.Context, c.String("key-file"), useKey(setKey))()
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(c.Context, func() { _ = server.Close() })()
	fmt.Fprintf(env.stderr, "renderer: http://%s/render\n", l.Addr())
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
