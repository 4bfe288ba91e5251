package testutil_test

import (
	"errors"
	"net"
	"runtime"
	"syscall"
	"testing"

	"muster/internal/testutil"
)

// A free port can be listened on by number more than once; in between a connection is refused.
func TestFreePortCanBeListenedOn(t *testing.T) {
	t.Parallel()
	addr := testutil.FreeAddr(t)
	for range 3 {
		if c, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			if err == nil {
				_ = c.Close()
			}
			t.Fatalf("dialing a port that nobody listens on: %v", err)
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := net.Listen("tcp", addr); err == nil {
			_ = second.Close()
			t.Fatal("two listen on one port")
		}
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		// A connection that was open when the server went must not keep the port.
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = server.Close(), l.Close()
		_ = c.Close()
	}
}

// Who takes any port is not given a lent one, and no two are lent the same:
// so many are taken that some would be.
func TestLentPortIsGivenToNobody(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("NOT COVERED: ports are held on Linux only")
	}
	lent := map[int]bool{}
	for range 200 {
		port := testutil.FreePort(t)
		if lent[port] {
			t.Fatalf("port %d is lent twice", port)
		}
		lent[port] = true
	}
	for range 3000 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
		if lent[port] {
			t.Fatalf("port %d is lent, and given away", port)
		}
	}
}

func TestRelease(t *testing.T) {
	t.Parallel()
	port, release, err := testutil.HoldPort()
	if err != nil || port == 0 {
		t.Fatal(port, err)
	}
	release()
	release()
}
