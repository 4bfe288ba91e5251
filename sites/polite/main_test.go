package polite_test

import (
	"net"
	"testing"

	"muster/internal/dnstest"
	"muster/internal/redistest"
)

// TestMain makes names below .test resolve to loopback.
func TestMain(m *testing.M) {
	net.DefaultResolver = dnstest.Resolver(dnstest.Loopback)
	redistest.Main(m)
}
