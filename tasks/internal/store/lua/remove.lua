-- remove removes a worker that was found dead from the list of workers, unless it has sent a heartbeat since.
-- KEYS[1] workers, as in beat
-- ARGV[1] worker, [2] ms without a beat after which a worker is silent
-- returns 1 if it was removed, else 0
local last = redis.call('ZSCORE', KEYS[1], ARGV[1])
if last and math.abs(now - tonumber(last)) <= tonumber(ARGV[2]) then return 0 end
redis.call('ZREM', KEYS[1], ARGV[1], '?' .. ARGV[1])
return 1
