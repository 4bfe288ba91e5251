package testutil

import (
	"net"
	"strconv"
	"testing"
)

// FreePort returns a TCP port of 127.0.0.1 that is reserved for tb until the end of the test. Connections are refused until the test
// listens on the port, which it may do more than once.
//
// In contrast, the port of a closed listener on port 0 is not reserved: the system may assign it to the next program.
func FreePort(tb testing.TB) int {
	tb.Helper()
	port, release, err := HoldPort()
	if err != nil {
		tb.Fatalf("hold a port: %v", err)
	}
	tb.Cleanup(release)
	return port
}

// FreeAddr returns the address of a [FreePort] as host:port.
func FreeAddr(tb testing.TB) string {
	tb.Helper()
	return LoopbackAddr(FreePort(tb))
}

// LoopbackAddr returns 127.0.0.1:port.
func LoopbackAddr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
