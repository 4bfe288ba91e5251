// Package porttest lends tests TCP ports that nobody else is given.
//
// A test that listens on port 0, notes the number and closes the listener has
// no claim to the port any more: the next one who asks for any port, or who
// connects to somewhere, may be given it. The ports of this package stay taken
// for all who take what they are given, and free for who asks for their number.
package porttest

import (
	"net"
	"strconv"
	"testing"
)

// Lend returns a port of 127.0.0.1 that is tb's until it ends: nobody listens
// on it unless by its number, as often as wanted, and until somebody does a
// connection is refused.
func Lend(tb testing.TB) int {
	tb.Helper()
	port, release, err := Hold()
	if err != nil {
		tb.Fatalf("hold a port: %v", err)
	}
	tb.Cleanup(release)
	return port
}

// LendAddr is Lend as host:port.
func LendAddr(tb testing.TB) string {
	tb.Helper()
	return Addr(Lend(tb))
}

// Addr returns the host:port of a port that was lent.
func Addr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
