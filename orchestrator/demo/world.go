// Package demo is a small internet on loopback, which `muster demo` works on: two web sites with faults,
// proxies of every kind, lists of them, and a judge.
//
// [Start] starts a [World]. Its sites have names that only its proxies resolve, so every page that is
// fetched came through a proxy. Each site fails some requests on purpose, by a plan that depends on the path
// and the number of requests for it, and serves every page in the end. Pages and records come from the files
// in data/. A site counts its requests and knows all of its records, so that a scrape can be compared with
// the truth.
package demo

import (
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
	// Dir is an existing folder for the definitions of the sites and a list of proxies. It has no default.
	Dir string
	// Proxies is the number of proxies. Defaults to 48, which include all kinds.
	Proxies int
}

// World is a running world. Close it.
type World struct {
	Shop, News *Site

	// Definitions is the folder with the sites' definitions.
	Definitions string
	// Sources are the lists of proxies: a file, a text and a JSON document over HTTP. Together they name
	// every proxy.
	Sources []string
	// Judge is the URL of the judge, JudgeKey the key that its answers are signed with.
	Judge, JudgeKey string
	// Proxies are the proxies, good and bad, with the right result of a check for each.
	Proxies []*proxytest.Proxy
	// Hosts maps the names of the sites to their addresses on loopback. The proxies use it.
	Hosts proxytest.Hosts

	proxies *proxytest.World
	servers []*http.Server
	serving sync.WaitGroup
}

// Start starts a world. It fails where loopback is not all of 127.0.0.0/8, so that the proxies cannot have
// exit addresses of their own.
func Start(ctx context.Context, cfg Config) (_ *World, err error) {
	w := &World{Shop: newShop(), News: newNews(), Hosts: proxytest.Hosts{}}
	defer func() {
		if err != nil {
			_ = w.Close() // the first error matters
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
	w.proxies, err = proxytest.NewWorld(proxytest.WorldConfig{Proxies: cfg.Proxies, Hosts: w.Hosts})
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

// Sites are the sites of the world.
func (w *World) Sites() []*Site { return []*Site{w.Shop, w.News} }

// URL returns the address of a site for a browser on this machine, without a proxy.
func (w *World) URL(s *Site) string { return "http://" + w.Hosts[s.Host] + "/" }

// Close stops everything and waits for its end.
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

// canLeaveBy returns an error unless connections can be made from addr.
func canLeaveBy(ctx context.Context, addr netip.Addr) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", netip.AddrPortFrom(addr, 0).String())
	if err != nil {
		return fmt.Errorf("give the demo's proxies addresses of their own: %w; it takes a system whose loopback is all of 127.0.0.0/8, as on Linux (elsewhere, run it in a container)", err)
	}
	return l.Close()
}

// serve runs handler on a free loopback port until Close, and returns its host:port.
func (w *World) serve(ctx context.Context, handler http.Handler) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       time.Minute,
		// A client that goes away in the middle is part of the play.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	w.servers = append(w.servers, s)
	w.serving.Go(func() { _ = s.Serve(l) }) // it ends when Close closes it
	return l.Addr().String(), nil
}

// publishLists writes the proxies as a file and serves them as text and as JSON. Each list lacks some
// that another has, and some are in all.
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
			if strings.Contains(all, "http://"+u.Host+"\n") { // two protocols would make two candidates of it
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

// jsonRow returns a proxy in the form of JSON lists.
func jsonRow(u *url.URL) map[string]any {
	port, _ := strconv.Atoi(u.Port()) // a listener's, always a number
	row := map[string]any{"ip": u.Hostname(), "port": port, "protocol": u.Scheme}
	if u.User != nil {
		row["username"] = u.User.Username()
		row["password"], _ = u.User.Password()
	}
	return row
}

// writeDefinitions writes the definitions of the sites into a folder for their loader.
func (w *World) writeDefinitions(dir string) error {
	w.Definitions = filepath.Join(dir, "sites")
	if err := os.MkdirAll(w.Definitions, 0o700); err != nil {
		return fmt.Errorf("make the folder of definitions: %w", err)
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

// part returns every third line of a list from line which on, for one of the two text lists. Both have the
// first six.
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
