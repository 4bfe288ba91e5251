//go:build !linux

package redistest

import "syscall"

// dieWithUs does nothing: only Linux can kill a child with its parent. On other systems a killed test run leaves its
// redis-server running.
func dieWithUs() *syscall.SysProcAttr { return nil }
