-- Deletes a key of a job that does not exist.
-- KEYS: 1 record, 2 fence, 3 key. ARGV: token.
-- Returns 1, or 0 if there is such a job.
if redis.call("GET", KEYS[2]) ~= ARGV[1] then return redis.error_reply("FENCED another process repairs") end
if redis.call("EXISTS", KEYS[1]) == 1 then return 0 end
redis.call("DEL", KEYS[3])
return 1
