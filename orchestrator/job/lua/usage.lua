-- Adds to what a job has used.
-- KEYS: 1 record, 2 usage. ARGV: fields and numbers.
-- Returns 1, or 0 if there is no such job.
if redis.call("EXISTS", KEYS[1]) == 0 then return 0 end
for i = 1, #ARGV, 2 do
  redis.pcall("HINCRBY", KEYS[2], ARGV[i], ARGV[i + 1]) -- a total that is too large stays
end
return 1
