//go:build !linux

package redistest

import "syscall"

// dieWithUs does nothing: only Linux can kill a child with its parent. On other
// systems a test run that is killed leaves its redis-server running.
func dieWithUs() *syscall.SysProcAttr { return nil }
