package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"

	"muster/orchestrator"
	"muster/orchestrator/api"
)

// serveMetrics serves h as /metrics of a component, with its /health and /ready, under the guard of the HTTP
// interface, and prints its address, until stop is called.
func serveMetrics(address, component string, system *orchestrator.System, out io.Writer, h http.Handler) (stop func(), err error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, usageError{fmt.Errorf("--metrics-listen: %q is not an address to listen at; write host:port, as in 127.0.0.1:9090", address)}
	}
	served, err := orchestrator.Guarded(system)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan string, 1), make(chan error, 1)
	served.Component, served.Listen, served.Metrics, served.Ready = component, address, h, func(url string) { ready <- url }
	go func() { ended <- api.ServeMetrics(ctx, served) }()
	select {
	case err := <-ended:
		cancel()
		return nil, fmt.Errorf("--metrics-listen: %w", err)
	case url := <-ready:
		fmt.Fprintf(out, "metrics are at %s\n", url)
	}
	return func() {
		cancel()
		if err := <-ended; err != nil {
			fmt.Fprintf(out, "metrics ended early: %v\n", err)
		}
	}, nil
}
