package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"

	"muster/orchestrator/api"
	"muster/orchestrator/config"
)

// serveMetrics serves h as /metrics under the guard of the HTTP interface, and says where, until stop is called.
func serveMetrics(address string, access config.API, out io.Writer, h http.Handler) (stop func(), err error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, usageError{fmt.Errorf("--metrics-listen: %q is not an address to listen at; write host:port, as in 127.0.0.1:9090", address)}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, served := make(chan string, 1), make(chan error, 1)
	go func() {
		served <- api.ServeMetrics(ctx, api.Config{
			Listen: address, Keys: access.Keys, Hosts: access.Hosts, Metrics: h, Ready: func(url string) { ready <- url },
		})
	}()
	select {
	case err := <-served:
		cancel()
		return nil, fmt.Errorf("--metrics-listen: %w", err)
	case url := <-ready:
		fmt.Fprintf(out, "metrics are at %s\n", url)
	}
	return func() {
		cancel()
		if err := <-served; err != nil {
			fmt.Fprintf(out, "metrics ended early: %v\n", err)
		}
	}, nil
}
