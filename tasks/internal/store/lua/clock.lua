-- clock returns the time, in unix ms.
-- KEYS as in lib
-- ARGV none
return whole(now)
