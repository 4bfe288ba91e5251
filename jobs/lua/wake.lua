-- Wakes a process that waits for work.
-- KEYS: 1 wake. ARGV: none.
-- Returns 1.
wakeOne(KEYS[1])
return 1
