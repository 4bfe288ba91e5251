package agent

// Waiting returns the number of polls, agents and Go tasks that wait for work in this process.
func (s *Service) Waiting() (n int) {
	s.waiters.mu.Lock()
	defer s.waiters.mu.Unlock()
	for w := range s.waiters.all {
		if w.waiting {
			n++
		}
	}
	return n
}
