// Package otlp exports spans to a collector with the OpenTelemetry Protocol over HTTP. It is separate from package tracing, so that
// packages that create spans do not depend on the exporter.
package otlp

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"

	"muster/internal/tracing"
)

// Open returns the tracing of the settings, or nil without a collector. See [tracing.New].
func Open(cfg tracing.Config, logger *slog.Logger) (*tracing.Tracing, error) {
	if cfg.Endpoint == "" {
		return nil, nil
	}
	endpoint, err := url.Parse(cfg.Endpoint)
	if err != nil {
		return nil, errors.New("tracing.endpoint is not a URL") // the error of Parse contains the URL
	}
	if endpoint.Path == "" || endpoint.Path == "/" {
		endpoint.Path = "/v1/traces"
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: cfg.Timeout}).DialContext, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: cfg.Timeout, ResponseHeaderTimeout: cfg.Timeout, MaxIdleConns: 2, IdleConnTimeout: time.Minute,
	}
	exporter := otlptrace.NewUnstarted(otlptracehttp.NewClient(
		otlptracehttp.WithEndpointURL(endpoint.String()), otlptracehttp.WithHeaders(cfg.Headers),
		otlptracehttp.WithCompression(otlptracehttp.GzipCompression), otlptracehttp.WithTimeout(cfg.Timeout),
		otlptracehttp.WithHTTPClient(&http.Client{Transport: transport, Timeout: cfg.Timeout}),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: time.Second, MaxInterval: cfg.Timeout, MaxElapsedTime: cfg.Timeout}),
	))
	return tracing.New(cfg, tracing.Collector{Exporter: exporter, Address: endpoint.Redacted(), Idle: transport.CloseIdleConnections}, logger)
}
