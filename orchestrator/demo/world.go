// Package demo contains a small internet on loopback for `muster demo`: two websites with faults, proxies of all kinds, proxy
// lists and a judge.
//
// [Start] starts a [World]. Only its proxies resolve the names of its sites, so that all pages are fetched through a proxy. Each
// site fails some requests, determined by path and request number, and eventually serves every page. Pages and records are
// generated from the files in data/. A site counts its requests and knows all of its records, so that a scrape can be compared
// with the truth.
package demo

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"muster/proxies/proxytest"
)

//go:embed definitions/*.yaml
var definitionFiles embed.FS

// Config configures a world.
type Config struct {
	// Dir is an existing directory for the definitions of the sites and a proxy list. Required.
	Dir string
	// Proxies is the number of proxies. The default of 48 includes all kinds.
	Proxies int
}

// World is a running world. The caller must close it.
type World struct {
	Shop, News *Site

	// Definitions is the directory of the site definitions.
	Definitions string
	// Sources are the proxy lists: a file, and text and JSON documents over HTTP. Together they contain all proxies.
	Sources []string
	// Judge is the URL of the judge, JudgeKey the key that signs its responses.
	Judge, JudgeKey string
	// Proxies are all proxies, with the expected result of a check of each.
	Proxies []*proxytest.Proxy
	// Hosts maps the names of the sites to their loopback addresses, for the proxies.
	Hosts proxytest.Hosts

	proxies *proxytest.World
	servers []*http.Server
	serving sync.WaitGroup
}

// Start starts a world. It fails on systems where loopback is not all of 127.0.0.0/8, because the proxies need distinct exit
// addresses.
func Start(ctx context.Context, cfg Config) (_ *World, err error) {
	w := &World{Shop: newShop(), News: newNews(), Hosts: proxytest.Hosts{}}
	defer func() {
		if err != nil {
			_ = w.Close() // err is the relevant error
		}
	}()

	if err := canLeaveBy(ctx, proxytest.ExitAddress(0)); err != nil {
		return nil, err
	}
	for _, s := range w.Sites() {
		addr, err := w.serve(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("serve %s: %w", s.Host, err)
		}
		w.Hosts[s.Host] = addr
	}
	w.proxies, err = proxytest.NewWorld(cmp.Or(cfg.Proxies, 48), w.Hosts)
	if err != nil {
		return nil, fmt.Errorf("start the proxies: %w", err)
	}
	w.Proxies = w.proxies.Proxies
	w.Judge, w.JudgeKey = w.proxies.Judge.URLs[0], w.proxies.Key

	if err := w.publishLists(ctx, cfg.Dir); err != nil {
		return nil, err
	}
	if err := w.writeDefinitions(cfg.Dir); err != nil {
		return nil, err
	}
	return w, nil
}

// Sites returns the sites of the world.
func (w *World) Sites() []*Site { return []*Site{w.Shop, w.News} }

// URL returns the URL of a site for a browser on this machine, without a proxy.
func (w *World) URL(s *Site) string { return "http://" + w.Hosts[s.Host] + "/" }

// Close stops the world and waits until all parts have stopped.
func (w *World) Close() error {
	var errs []error
	for _, s := range w.servers {
		errs = append(errs, s.Close())
	}
	w.serving.Wait()
	if w.proxies != nil {
		w.proxies.Close()
	}
	return errors.Join(errs...)
}

// canLeaveBy checks that connections can use addr as source address.
func canLeaveBy(ctx context.Context, addr netip.Addr) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", netip.AddrPortFrom(addr, 0).String())
	if err != nil {
		return fmt.Errorf("assign addresses to the proxies of the demo: %w; the demo requires a system whose loopback is all of 127.0.0.0/8, such as Linux (on other systems, use a container)", err)
	}
	return l.Close()
}

// serve runs handler on a free loopback port until Close, and returns the address.
func (w *World) serve(ctx context.Context, handler http.Handler) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       time.Minute,
		// Clients that disconnect early are expected.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	w.servers = append(w.servers, s)
	w.serving.Go(func() { _ = s.Serve(l) }) // returns after Close
	return l.Addr().String(), nil
}

// publishLists writes the proxy list as a file and serves it as text and as JSON. Each list lacks some proxies, and some are in
// all lists.
func (w *World) publishLists(ctx context.Context, dir string) error {
	all := w.proxies.List()
	file := filepath.Join(dir, "proxies.txt")
	if err := os.WriteFile(file, []byte(part(all, 0)), 0o600); err != nil {
		return fmt.Errorf("write the list of proxies: %w", err)
	}

	var rows []map[string]any
	for i, p := range w.Proxies {
		if i%3 == 2 || i < 6 {
			u := *p.URL
			if strings.Contains(all, "http://"+u.Host+"\n") { // avoids two candidates with different protocols
				u.Scheme = "http"
			}
			rows = append(rows, jsonRow(&u))
		}
	}
	asJSON, err := json.MarshalIndent(map[string]any{"data": rows}, "", "  ")
	if err != nil {
		return fmt.Errorf("write the list of proxies as JSON: %w", err)
	}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /proxies.txt", func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(rw, part(all, 1))
	})
	mux.HandleFunc("GET /proxies.json", func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		_, _ = rw.Write(asJSON)
	})
	addr, err := w.serve(ctx, mux)
	if err != nil {
		return fmt.Errorf("serve the lists of proxies: %w", err)
	}
	w.Sources = []string{file, "http://" + addr + "/proxies.txt", "http://" + addr + "/proxies.json"}
	return nil
}

// jsonRow returns a proxy in the format of JSON lists.
func jsonRow(u *url.URL) map[string]any {
	port, _ := strconv.Atoi(u.Port()) // always a number
	row := map[string]any{"ip": u.Hostname(), "port": port, "protocol": u.Scheme}
	if u.User != nil {
		row["username"] = u.User.Username()
		row["password"], _ = u.User.Password()
	}
	return row
}

// writeDefinitions writes the definitions of the sites to a directory.
func (w *World) writeDefinitions(dir string) error {
	w.Definitions = filepath.Join(dir, "sites")
	if err := os.MkdirAll(w.Definitions, 0o700); err != nil {
		return fmt.Errorf("create the directory of definitions: %w", err)
	}
	for _, s := range w.Sites() {
		name := s.Name + ".yaml"
		raw, err := definitionFiles.ReadFile("definitions/" + name)
		if err != nil {
			return fmt.Errorf("read the definition of %s: %w", s.Name, err)
		}
		if err := os.WriteFile(filepath.Join(w.Definitions, name), raw, 0o600); err != nil {
			return fmt.Errorf("write the definition of %s: %w", s.Name, err)
		}
	}
	return nil
}

// part returns every third line of a list, starting with line which, for a text list. All lists contain the first six lines.
func part(list string, which int) string {
	var b strings.Builder
	i := 0
	for line := range strings.Lines(list) {
		if strings.HasPrefix(line, "#") {
			b.WriteString(line)
			continue
		}
		if i%3 == which || i < 6 {
			b.WriteString(line)
		}
		i++
	}
	return b.String()
}
