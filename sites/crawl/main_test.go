package crawl

import (
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"

	"muster/internal/dnstest"
	"muster/internal/redistest"
)

// TestMain resolves names below .test to loopback.
func TestMain(m *testing.M) {
	if how, ok := os.LookupEnv(asExtractor); ok {
		runExtractor(strings.ReplaceAll(how, "_", " "))
		return
	}
	net.DefaultResolver = dnstest.Resolver(dnstest.Loopback)
	redistest.Main(m)
}

var noLog = slog.New(slog.DiscardHandler)
