package sites

import (
	"fmt"
	"net"
	"os"
	"testing"

	"muster/internal/dnstest"
	"muster/tasks/redistest"
)

// TestMain makes names below .test stand for loopback.
func TestMain(m *testing.M) {
	if args := os.Getenv(writerChildEnv); args != "" {
		if err := writerChild(args); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	net.DefaultResolver = dnstest.Resolver(dnstest.Loopback)
	redistest.Main(m)
}
