package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// serveMetrics serves h as /metrics, and says where. The answer ends it.
func serveMetrics(address string, out io.Writer, h http.Handler) (stop func(), err error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, usageError{fmt.Errorf("--metrics-listen: %q is not an address to listen at; write host:port, as in 127.0.0.1:9090", address)}
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--metrics-listen: %w; choose another port, or port 0 for any that is free", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", h)
	server := &http.Server{Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, MaxHeaderBytes: 16 << 10}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	fmt.Fprintf(out, "metrics are at http://%s/metrics\n", l.Addr())
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = server.Shutdown(ctx) // the process ends anyway
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintf(out, "metrics ended early: %v\n", err)
		}
	}, nil
}
