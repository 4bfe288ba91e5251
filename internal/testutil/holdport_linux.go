package testutil

import (
	"fmt"
	"os"
	"sync"
	"syscall"
)

// HoldPort is like [FreePort] without a test. The port is reserved until release, which may be called more than once.
//
// The system does not assign a port to another program while a socket is bound to it, even if the socket does not listen. A server
// with SO_REUSEADDR, which Go sets for all servers, can still listen on the port.
func HoldPort() (port int, release func(), err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, os.NewSyscallError("socket", err)
	}
	release = sync.OnceFunc(func() { _ = syscall.Close(fd) })
	if err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		err = os.NewSyscallError("setsockopt", err)
	} else if err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		err = os.NewSyscallError("bind", err)
	} else if name, failed := syscall.Getsockname(fd); failed != nil {
		err = os.NewSyscallError("getsockname", failed)
	} else if inet, ok := name.(*syscall.SockaddrInet4); !ok {
		err = fmt.Errorf("the socket has the address %v", name)
	} else {
		return inet.Port, release, nil
	}
	release()
	return 0, nil, err
}
