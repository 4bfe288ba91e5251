package redisd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// errPortTaken means that another process uses the port.
var errPortTaken = errors.New("port in use")

// atPort calls start with a free port. It retries with another port if a process takes the port in the meantime.
func (c Config) atPort(start func(port int) error) error {
	const tries = 5
	for try := 1; ; try++ {
		port, err := c.choosePort()
		if err != nil {
			return err
		}
		err = start(port)
		if !errors.Is(err, errPortTaken) && !errors.Is(err, syscall.EADDRINUSE) || try == tries {
			return err
		}
	}
}

// lastPort returns the port of the last Redis on this data directory.
func (d folder) lastPort() (int, error) {
	b, err := os.ReadFile(d.portFile())
	if err != nil {
		return 0, err
	}
	port, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err == nil && (port <= 0 || port > 65535) {
		err = strconv.ErrRange
	}
	return port, err
}

// rememberPort stores the port for the next start.
func (d folder) rememberPort(port int) error {
	return os.WriteFile(d.portFile(), []byte(strconv.Itoa(port)), 0o600)
}

// choosePort returns the configured port, the last port of this data directory (so that clients can reconnect) or any free
// port, in this order.
func (c Config) choosePort() (int, error) {
	if c.Port != 0 {
		if err := tryPort(c.Port); err != nil {
			return 0, fmt.Errorf("%w: %w; set redis.port to another port, or to 0 for any port", errPortTaken, err)
		}
		return c.Port, nil
	}
	if port, err := c.folder().lastPort(); err == nil && tryPort(port) == nil {
		return port, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func tryPort(port int) error {
	for try := 1; ; try++ {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return l.Close()
		}
		if try == 5 {
			return err
		}
		time.Sleep(10 * time.Millisecond) // a forked child keeps closed sockets open until its exec
	}
}
