package agent

import "context"

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

// Recount runs one tick of Run.
func (s *Service) Recount(ctx context.Context) error { return s.server.recount(ctx) }

// Load returns how many assignments the polls of this process believe that their agent holds, one number for each poll.
func (s *Service) Load(agent string) (held []int) {
	s.waiters.mu.Lock()
	defer s.waiters.mu.Unlock()
	for w := range s.waiters.all {
		if w.agent == agent {
			held = append(held, w.held)
		}
	}
	return held
}

// Check checks the health of an agent with a URL now, and returns it. It
// returns ErrNoAgent.
func (s *Service) Check(ctx context.Context, id string) (Agent, error) {
	if err := s.check(ctx, id); err != nil {
		return Agent{}, err
	}
	return s.Get(ctx, id)
}
