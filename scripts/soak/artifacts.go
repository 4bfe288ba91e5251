//go:build unix

package main

import (
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// artifacts serves the artifacts of the work queue.
type artifacts struct {
	addr   string
	server *http.Server
	done   chan struct{}
}

func startArtifacts() (*artifacts, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /robots.txt", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "User-agent: *\nDisallow: /private/\n")
	})
	mux.HandleFunc("GET /good/{id}", func(w http.ResponseWriter, r *http.Request) {
		// Few distinct contents, because content is stored by checksum.
		_, _ = io.WriteString(w, strings.Repeat("content "+r.PathValue("id")[len(r.PathValue("id"))-1:]+"\n", 500))
	})
	a := &artifacts{addr: l.Addr().String(), server: &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}, done: make(chan struct{})}
	go func() {
		defer close(a.done)
		_ = a.server.Serve(l) // until close
	}()
	return a, nil
}

func (a *artifacts) close() {
	_ = a.server.Close()
	<-a.done
}

// artifact returns the URL of an item and its expected final state.
func (a *artifacts) artifact(id string, n int) (url, state string) {
	switch n % 10 {
	case 8:
		return "http://" + a.addr + "/private/" + id, "skipped"
	case 9:
		return "http://" + a.addr + "/gone/" + id, "error"
	}
	return "http://" + a.addr + "/good/" + id, "done"
}
