//go:build !linux

package redistest

import "syscall"

// dieWithUs does nothing here: only Linux can bind a child's life to ours, so
// that elsewhere a killed test run leaves its redis-server behind.
func dieWithUs() *syscall.SysProcAttr { return nil }
