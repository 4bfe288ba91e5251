package testutil

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// Serve starts a server that is closed with the test.
func Serve(tb testing.TB, h http.Handler) *httptest.Server {
	tb.Helper()
	s := httptest.NewServer(h)
	tb.Cleanup(s.Close)
	return s
}
