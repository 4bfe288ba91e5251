-- beat stores the heartbeat of a worker, and returns the live workers and the dead ones: workers that two calls found
-- silent.
-- KEYS[1] workers by their last beat; "?<worker>" by when a worker was first found silent
-- ARGV[1] name, or '' to only read, [2] ms without a beat after which a worker is silent, [3] least ms between the two
-- calls that find it dead, [4] '1' for the first beat of a worker
-- returns {'taken', its last beat} for the first beat if a worker of the name is live, else {number n of dead workers, n dead workers…, live workers…}; a dead one is returned until it is removed
local me, silence = ARGV[1], tonumber(ARGV[2])
if ARGV[4] == '1' then
  local last = redis.call('ZSCORE', KEYS[1], me)
  if last and math.abs(now - tonumber(last)) <= silence then return {'taken', last} end
end
if me ~= '' then redis.call('ZADD', KEYS[1], whole(now), me) end
local names, found = {}, {} -- found: when a worker was first found silent
local all = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
for i = 1, #all, 2 do
  local marked = string.match(all[i], '^%?(.*)$')
  if marked then found[marked] = tonumber(all[i + 1]) else names[#names + 1] = i end
end
if found[me] then redis.call('ZREM', KEYS[1], '?' .. me) end
local dead, live = {}, {}
for _, i in ipairs(names) do
  local w = all[i]
  -- A beat in the future is from before the clock was set back.
  if math.abs(now - tonumber(all[i + 1])) <= silence then
    live[#live + 1] = w
  elseif me ~= '' then
    if not found[w] then
      redis.call('ZADD', KEYS[1], whole(now), '?' .. w)
    elseif math.abs(now - found[w]) >= tonumber(ARGV[3]) then
      dead[#dead + 1] = w
    end
  end
end
local out = {whole(#dead)}
for _, w in ipairs(dead) do out[#out + 1] = w end
for _, w in ipairs(live) do out[#out + 1] = w end
return out
