package fetch

import (
	"net"
	"os"
	"testing"

	"muster/internal/dnstest"
)

// TestMain makes names below .test stand for loopback.
func TestMain(m *testing.M) {
	net.DefaultResolver = dnstest.Resolver(dnstest.Loopback)
	os.Exit(m.Run())
}
