package porttest_test

import (
	"errors"
	"net"
	"runtime"
	"syscall"
	"testing"

	"muster/tasks/porttest"
)

// Who asks for the port gets it, again and again; in between nobody answers.
func TestLentPortIsForWhoAsks(t *testing.T) {
	t.Parallel()
	addr := porttest.LendAddr(t)
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
		port := porttest.Lend(t)
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
	port, release, err := porttest.Hold()
	if err != nil || port == 0 {
		t.Fatal(port, err)
	}
	release()
	release()
}
