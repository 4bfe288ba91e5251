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

// errPortTaken says that another process has the port.
var errPortTaken = errors.New("port is taken")

// atPort calls start with a free port, and with another one when a process has
// taken that in between.
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

// lastPort is the port of the last Redis on this data folder.
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

// rememberPort keeps the port for the next start.
func (d folder) rememberPort(port int) error {
	return os.WriteFile(d.portFile(), []byte(strconv.Itoa(port)), 0o600)
}

// choosePort returns the port of the configuration, or else the last one of
// this data folder, so that connected clients find the Redis again, or else any
// free one.
func (c Config) choosePort() (int, error) {
	if c.Port != 0 {
		if err := tryPort(c.Port); err != nil {
			return 0, fmt.Errorf("%w: %w; set redis.port to another, or to 0 for any", errPortTaken, err)
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
		time.Sleep(10 * time.Millisecond) // a process that is being started has what we have closed until its exec
	}
}
