package limit

// Waiting returns the number of callers in this process that wait for a slot of key.
func Waiting(l *KeyedLimiter, key string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lines[key])
}

// Die stops the renewal of slots, as if the process had died.
func Die(l *KeyedLimiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.held)
	l.renewal()
	l.renewal = nil
}
