//go:build !linux

package testutil

import "net"

// HoldPort is [FreePort] without a test. On systems other than Linux the port was
// free a moment ago, but is not reserved.
func HoldPort() (port int, release func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, nil, err
	}
	port = l.Addr().(*net.TCPAddr).Port
	return port, func() {}, l.Close()
}
