package sites

import (
	"net"
	"testing"

	"muster/internal/dnstest"
	"muster/internal/redistest"
)

// TestMain resolves names below .test to loopback.
func TestMain(m *testing.M) {
	net.DefaultResolver = dnstest.Resolver(dnstest.Loopback)
	redistest.Main(m)
}
