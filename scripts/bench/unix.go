//go:build unix

package main

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// ownGroup is the attribute of a process that a Ctrl-C does not reach.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// deaf is a listening port on all of 127.0.0.0/8 whose queue is full: SYNs to it get no answer.
type deaf struct {
	fd    int
	port  uint16
	conns []net.Conn
}

func listenDeaf() (*deaf, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, fmt.Errorf("make a deaf port: %w", err)
	}
	d := &deaf{fd: fd}
	if err = syscall.Bind(fd, &syscall.SockaddrInet4{}); err == nil {
		err = syscall.Listen(fd, 0)
	}
	address, err1 := syscall.Getsockname(fd)
	if err := errors.Join(err, err1); err != nil {
		d.close()
		return nil, fmt.Errorf("make a deaf port: %w", err)
	}
	d.port = uint16(address.(*syscall.SockaddrInet4).Port)
	for range 8 {
		conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", d.port), 300*time.Millisecond)
		if err != nil {
			return d, nil
		}
		d.conns = append(d.conns, conn)
	}
	d.close()
	return nil, errors.New("make a deaf port: it still answers")
}

func (d *deaf) close() {
	for _, c := range d.conns {
		c.Close()
	}
	_ = syscall.Close(d.fd)
}

// cpuTime is the processor time that this process has used, in µs.
func cpuTime() (float64, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("read the processor time: %w", err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e3, nil
}
