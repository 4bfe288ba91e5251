package testutil_test

import (
	"errors"
	"net"
	"runtime"
	"syscall"
	"testing"

	"muster/internal/testutil"
)

// A free port can be listened on more than once; in between, connections are refused.
func TestFreePortCanBeListenedOn(t *testing.T) {
	t.Parallel()
	addr := testutil.FreeAddr(t)
	for range 3 {
		if c, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			if err == nil {
				_ = c.Close()
			}
			t.Fatalf("dial a port without a listener: got %v, want ECONNREFUSED", err)
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := net.Listen("tcp", addr); err == nil {
			_ = second.Close()
			t.Fatal("second listener on the port: got no error, want one")
		}
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		// A connection that was open when the server closed must not hold the port.
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = server.Close(), l.Close()
		_ = c.Close()
	}
}

// The system does not assign a reserved port to a listener on port 0, and no port is reserved twice. The number of ports makes a
// collision certain otherwise.
func TestReservedPortIsNotReused(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("NOT COVERED: ports are held on Linux only")
	}
	reserved := map[int]bool{}
	for range 200 {
		port := testutil.FreePort(t)
		if reserved[port] {
			t.Fatalf("got port %d twice, want different ports", port)
		}
		reserved[port] = true
	}
	for range 3000 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
		if reserved[port] {
			t.Fatalf("listen on port 0: got the reserved port %d, want another", port)
		}
	}
}

func TestReleaseCanBeCalledTwice(t *testing.T) {
	t.Parallel()
	port, release, err := testutil.HoldPort()
	if err != nil || port == 0 {
		t.Fatalf("got port %d, %v, want a port", port, err)
	}
	release()
	release()
}
