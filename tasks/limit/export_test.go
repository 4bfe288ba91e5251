package limit

// Waiting returns how many callers of this process wait for a slot of key.
func Waiting(l *KeyedLimiter, key string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lines[key])
}

// Die makes a limiter renew no slots, as if its process had died.
func Die(l *KeyedLimiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.held)
	l.renewal()
	l.renewal = nil
}
