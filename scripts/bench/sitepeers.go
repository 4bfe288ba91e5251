package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
)

// peersDir is the module of the peers, beside this file.
func peersDir() string {
	_, file, _, _ := runtime.Caller(0)
	if !filepath.IsAbs(file) { // built with -trimpath; bench runs in the folder of the module
		return filepath.Join("scripts", "bench", "peers")
	}
	return filepath.Join(filepath.Dir(file), "peers")
}

func scrapeWithColly(ctx context.Context, _ *lab) (float64, error) {
	dir, err := os.MkdirTemp("", "muster-bench-colly-")
	if err != nil {
		return 0, fmt.Errorf("make a folder for colly: %w", err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "colly")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "./colly") // in each round: go has it in its cache
	cmd.Dir = peersDir()
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%w: build colly: %w\n%s", errNoPeer, err, bytes.TrimSpace(out))
	}
	return scrapeWithPeer(func(base string) *exec.Cmd {
		return exec.CommandContext(ctx, path, base, strconv.Itoa(pagesAtOnce))
	})
}

func scrapeWithScrapy(ctx context.Context, _ *lab) (float64, error) {
	// Debian's python3-scrapy is for Debian's Python.
	const python = "/usr/bin/python3"
	if err := exec.CommandContext(ctx, python, "-c", "import scrapy").Run(); err != nil {
		return 0, fmt.Errorf("%w: apt-get install python3-scrapy", errNoPeer)
	}
	dir, err := os.MkdirTemp("", "muster-bench-scrapy-")
	if err != nil {
		return 0, fmt.Errorf("make a folder for records: %w", err)
	}
	defer os.RemoveAll(dir)
	return scrapeWithPeer(func(base string) *exec.Cmd {
		return exec.CommandContext(ctx, python, filepath.Join(peersDir(), "scrapy", "spider.py"), base, strconv.Itoa(pagesAtOnce), filepath.Join(dir, "items.jsonl"))
	})
}

// scrapeWithPeer runs a peer against the site. The peer prints the number of items and
// of seconds.
func scrapeWithPeer(peer func(base string) *exec.Cmd) (float64, error) {
	srv, _, err := benchSite()
	if err != nil {
		return 0, err
	}
	defer srv.Close()
	var out, errs bytes.Buffer
	cmd := peer(srv.URL)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("%w\n%s", err, bytes.TrimSpace(errs.Bytes()))
	}
	var items int
	var seconds float64
	if _, err := fmt.Sscan(out.String(), &items, &seconds); err != nil || items != sitePages {
		return 0, fmt.Errorf("got %q of the peer, want %d items and the seconds", out.String(), sitePages)
	}
	return float64(items) / seconds, nil
}
