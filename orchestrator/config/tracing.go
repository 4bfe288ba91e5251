package config

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Tracing configures the export of OpenTelemetry spans. Changes require a restart.
type Tracing struct {
	Endpoint string            `yaml:"endpoint" rule:"collector" secret:"url"`
	Headers  map[string]string `yaml:"headers" rule:"headers" secret:"all"`
	Sample   float64           `yaml:"sample" range:"0 1"`
	Service  string            `yaml:"service" rule:"required"`
	Timeout  time.Duration     `yaml:"timeout" range:"100ms 1m"`
}

// defaultTracing returns the defaults. Without an endpoint, tracing is disabled.
func defaultTracing() Tracing {
	return Tracing{Sample: 1, Service: "muster", Timeout: 5 * time.Second}
}

// checkCollector validates the URL of a collector. An empty string is valid.
func checkCollector(text string) error {
	if text == "" {
		return nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("invalid collector URL %q: use http://host:4318 or https://host/path; set credentials in tracing.headers", maskURL(text))
	}
	return nil
}

// checkHeaders validates request headers. The errors do not contain header values.
func checkHeaders(headers map[string]string) []error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		switch {
		case name == "" || strings.ContainsFunc(name, notInHeaderName):
			errs = append(errs, fmt.Errorf("invalid header name %.50q", name))
		case strings.ContainsFunc(headers[name], func(c rune) bool { return c < ' ' || c == 0x7f }):
			errs = append(errs, fmt.Errorf("the value of header %.50s contains a control character", name))
		}
	}
	return errs
}

func notInHeaderName(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}
