//go:build !unix

package main

import (
	"errors"
	"syscall"
)

func ownGroup() *syscall.SysProcAttr { return nil }

type deaf struct{ port uint16 }

func listenDeaf() (*deaf, error) { return nil, errors.New("make a deaf port: not on this system") }

func (*deaf) close() {}

func cpuTime() (float64, error) { return 0, errors.New("read the processor time: not on this system") }
