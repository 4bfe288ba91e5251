package main

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/proxies/probe"
)

func judgeCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "judge",
		Usage: "answer probes with what is seen of them, so that proxies can be judged",
		Description: `A proxy is judged by what a server behind it sees. This is that server. It
serves until it is interrupted. On loopback it judges proxies of this machine;
to judge others, run it where they can reach it, with --key-file, and name its
URL in proxies.judges and its key in proxies.judge_key_file.`,
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "listen", Usage: "listen on `ADDR` for plain http; may be repeated, for IPv6", Value: cli.NewStringSlice("127.0.0.1:8088")},
			&cli.StringFlag{Name: "listen-tls", Usage: "listen on `ADDR` for TLS; - for not at all", DefaultText: "a free port"},
			&cli.StringFlag{Name: "key-file", Usage: "sign answers with the key in `FILE`; needed when not on loopback"},
		},
		Action: func(c *cli.Context) error {
			if err := arguments(c, 0, 0); err != nil {
				return err
			}
			cfg := probe.JudgeConfig{Listen: c.StringSlice("listen"), ListenTLS: c.String("listen-tls")}
			if path := c.String("key-file"); path != "" {
				key, err := os.ReadFile(path)
				if err != nil {
					return fmt.Errorf("read the judge's key: %w", err)
				}
				if cfg.Key = strings.TrimSpace(string(key)); len(cfg.Key) < 16 {
					return usageError{fmt.Errorf("the key in %s is shorter than 16 characters; make one with: openssl rand -hex 32", path)}
				}
			}
			for _, addr := range append(c.StringSlice("listen"), cfg.ListenTLS) {
				if addr != "" && addr != "-" && !onLoopback(addr) && cfg.Key == "" {
					return usageError{fmt.Errorf("%s can be reached from outside: give the judge a key with --key-file, or listen on 127.0.0.1", addr)}
				}
			}
			judge, err := probe.StartJudge(cfg)
			if err != nil {
				return err
			}
			for _, url := range judge.URLs {
				fmt.Fprintf(env.stderr, "judge: %s\n", url)
			}
			if judge.TLSURL != "" {
				fmt.Fprintf(env.stderr, "judge: %s\n", judge.TLSURL)
			}
			<-c.Context.Done()
			return judge.Close()
		},
	}
}

// onLoopback tells whether a listener on addr is reached from this machine
// only. A name other than localhost is not trusted to be.
func onLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
