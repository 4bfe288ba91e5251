package sink

import (
	"net"
	"os"
	"testing"

	"muster/internal/dnstest"
)

// TestMain makes names below .test resolve to loopback.
func TestMain(m *testing.M) {
	net.DefaultResolver = dnstest.Resolver(dnstest.Loopback)
	os.Exit(m.Run())
}
