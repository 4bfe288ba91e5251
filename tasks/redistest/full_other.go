//go:build !linux

package redistest

// FillDisk skips the test: only Linux can bound the files of another process.
func (s *Instance) FillDisk() {
	s.tb.Helper()
	s.tb.Skipf("NOT COVERED: %s needs Linux, to bound the files of a redis-server", s.tb.Name())
}

// FreeDisk does nothing.
func (s *Instance) FreeDisk() {}
