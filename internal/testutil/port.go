package testutil

import (
	"net"
	"strconv"
	"testing"
)

// FreePort returns a TCP port of 127.0.0.1 that is reserved for tb until the
// test ends. Nothing listens on it, so connections are refused until the test
// listens on the port, which it may do more than once.
//
// The port of a listener that was opened on port 0 and closed again is not
// reserved: the system may give it to the next program that asks for any port.
func FreePort(tb testing.TB) int {
	tb.Helper()
	port, release, err := HoldPort()
	if err != nil {
		tb.Fatalf("hold a port: %v", err)
	}
	tb.Cleanup(release)
	return port
}

// FreeAddr returns the port of [FreePort] as host:port.
func FreeAddr(tb testing.TB) string {
	tb.Helper()
	return LoopbackAddr(FreePort(tb))
}

// LoopbackAddr returns 127.0.0.1:port.
func LoopbackAddr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
