package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHealthByURL(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/health" {
			http.Error(w, "redis is away", http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(server.Close)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for _, tt := range []struct {
		url, want string
		usage     bool
	}{
		{server.URL + "/health", "", false},
		{server.URL + "/ready", "503 Service Unavailable: redis is away", false},
		{gone.URL + "/health", "not healthy", false},
		{"localhost:8000", "give an http or https URL", true},
		{"", "give an http or https URL", true},
	} {
		err := probeURL(t.Context(), tt.url)
		if tt.want == "" {
			if err != nil {
				t.Errorf("%s: got %v, want no error", tt.url, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) || errors.As(err, new(usageError)) != tt.usage {
			t.Errorf("%q: got %v, want …%s… and usage %v", tt.url, err, tt.want, tt.usage)
		}
	}
}
