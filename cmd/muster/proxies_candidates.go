package main

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/config"
	"muster/proxies/source"
)

// maxChecked is the limit of proxies in a list; a check has them all in memory.
const maxChecked = 1_000_000

// candidatesOf reads the list and the proxies that a command names.
func candidatesOf(env environment, c *cli.Context, cfg config.Config, local bool) ([]source.Candidate, error) {
	var lists []source.List
	if file := c.String("file"); file != "" {
		list, err := (&source.Fetcher{Stdin: env.stdin, MaxBytes: cfg.Proxies.MaxListBytes(), Filter: cfg.Network.Filter()}).Fetch(c.Context, source.Source{URL: file, AllowLocal: local, Max: maxChecked})
		if err != nil {
			return nil, err
		}
		if n := list.Rejects[source.Capped]; n > 0 {
			return nil, fmt.Errorf("source %s: it has %d proxies more than the %d that are checked at once; split it", list.Source, n, maxChecked)
		}
		if list.Rejected != "" {
			fmt.Fprintln(env.stderr, "rejected:", list.Rejected)
		}
		lists = append(lists, list)
	}
	if c.NArg() > 0 {
		parsed, err := source.Parse(strings.NewReader(strings.Join(c.Args().Slice(), "\n")), source.Options{AllowLocal: true})
		if err != nil {
			return nil, err
		}
		if len(parsed.Candidates) < c.NArg() {
			return nil, usageError{fmt.Errorf("cannot read the proxies named: %s; write them as host:port or, with special characters %%-encoded, scheme://user:password@host:port", parsed.Describe("argument"))}
		}
		lists = append(lists, source.List{Candidates: parsed.Candidates})
	}
	return source.Merge(lists), nil
}

// judgedHere reports whether a judge or a target is on this machine. Then proxies on this machine are meant to be checked.
func judgedHere(judges []string) bool {
	return slices.ContainsFunc(judges, func(judge string) bool {
		u, err := url.Parse(judge)
		return err == nil && onLoopback(u.Host)
	})
}
