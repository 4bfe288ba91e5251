//go:build !linux

package porttest

import "net"

// Hold is Lend for who has no test. Elsewhere than on Linux the port is only
// one that was free a moment ago.
func Hold() (port int, release func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, nil, err
	}
	port = l.Addr().(*net.TCPAddr).Port
	return port, func() {}, l.Close()
}
