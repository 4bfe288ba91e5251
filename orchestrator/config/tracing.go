package config

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Tracing says where spans of OpenTelemetry are sent. A change needs a restart.
type Tracing struct {
	Endpoint string            `yaml:"endpoint" rule:"collector" secret:"url"`
	Headers  map[string]string `yaml:"headers" rule:"headers" secret:"all"`
	Sample   float64           `yaml:"sample" range:"0 1"`
	Service  string            `yaml:"service" rule:"required"`
	Timeout  time.Duration     `yaml:"timeout" range:"100ms 1m"`
}

// defaultTracing is off: without an endpoint no spans are made.
func defaultTracing() Tracing {
	return Tracing{Sample: 1, Service: "muster", Timeout: 5 * time.Second}
}

// checkCollector returns an error unless text is empty or the URL of a collector.
func checkCollector(text string) error {
	if text == "" {
		return nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%q is not the address of a collector; write http://host:4318 or https://host/path, and a password into tracing.headers", maskURL(text))
	}
	return nil
}

// checkHeaders returns what is wrong with the headers of requests. It does not show their values.
func checkHeaders(headers map[string]string) []error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		switch {
		case name == "" || strings.ContainsFunc(name, notInHeaderName):
			errs = append(errs, fmt.Errorf("%.50q is not the name of a header", name))
		case strings.ContainsFunc(headers[name], func(c rune) bool { return c < ' ' || c == 0x7f }):
			errs = append(errs, fmt.Errorf("the value of header %.50s has a control character", name))
		}
	}
	return errs
}

func notInHeaderName(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}
