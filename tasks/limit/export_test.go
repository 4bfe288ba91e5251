package limit

// Waiting is how many of this process wait for a slot of key.
func Waiting(l *KeyedLimiter, key string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lines[key])
}

// Die lets a limiter keep nothing any more, as if its process had died.
func Die(l *KeyedLimiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.held)
	l.renewal()
	l.renewal = nil
}
