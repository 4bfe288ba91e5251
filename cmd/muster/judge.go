package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/internal/addressfilter"
	"muster/internal/secret"
	"muster/proxies/probe"
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
			if path := c.String("key-file"); path != "" {
				key, err := secret.Read(path)
				if err == nil {
					cfg.Key, err = judgeKey(key)
				}
				if err != nil {
					return usageError{fmt.Errorf("read the judge's key in %s: %w", path, err)}
				}
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
			defer env.watchKey(c.Context, c.String("key-file"), func(text string) error {
				key, err := judgeKey(text)
				if err == nil {
					judge.SetKey(key)
				}
				return err
			})()
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

// judgeKey returns the key in the text of a file.
func judgeKey(text string) (string, error) {
	key := strings.TrimSpace(text)
	if len(key) < 16 {
		return "", errors.New("it is shorter than 16 characters; make one with: openssl rand -hex 32")
	}
	return key, nil
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
