//go:build !linux

package testutil

import "net"

// HoldPort is like [FreePort] without a test. On this system the port is free but not reserved.
func HoldPort() (port int, release func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, nil, err
	}
	port = l.Addr().(*net.TCPAddr).Port
	return port, func() {}, l.Close()
}
