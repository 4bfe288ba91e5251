//go:build !linux

package redistest

// FillDisk skips the test: only Linux can limit the files of another process.
func (s *Instance) FillDisk() {
	s.tb.Helper()
	s.tb.Skipf("NOT COVERED: %s requires Linux to limit the files of redis-server", s.tb.Name())
}

// FreeDisk does nothing.
func (s *Instance) FreeDisk() {}
