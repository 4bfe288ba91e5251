-- due makes nodes ready whose time has come, and claims the other entries of the agenda that are due: the caller sees
-- to them, and they become due again when the claim ends.
-- KEYS as in lib
-- ARGV[1] ms of the claim, [2] most entries to look at
-- returns {now, time of the next entry or 0, number of all entries, wants, number of entries that were due, then of
-- each claimed entry: the entry, its record or false}
local agenda = P .. 'agenda'
local lines = redis.call('ZRANGEBYSCORE', agenda, '-inf', whole(now), 'LIMIT', 0, ARGV[2])
local out = {whole(now), '0', 0, wants, #lines}
local claim = whole(now + ARGV[1])
local over, claims = {}, {}
for _, line in ipairs(lines) do
  local id, node = string.match(line, '^([^/]+)/(.+)$')
  local have = id and redis.call('HMGET', P .. 'w:' .. id, 'n', 'x', 'f', node, 'v')
  local rec = have and have[4]
  local letter, attempts, lost, lane, input = string.match(rec or '', '^([DTQ])|(%d*)|(%d*)|%d*|%d*|([^|]*)|(.*)$')
  if not have or not have[1] then
    over[#over + 1] = line
  elseif letter and lane ~= '-' then
    over[#over + 1] = line
    if not have[2] and (letter == 'D' or letter == 'T') then
      redis.call('HSET', P .. 'w:' .. id, node, 'Q|' .. attempts .. '|' .. lost .. '|0|' .. string.match(rec, '^.|%d*|%d*|%d*|(%d*)') .. '|' .. lane .. '|' .. input, 'v', whole(math.max(now, (tonumber(have[5] or '') or 0) + 1)))
      push(lane, have[3] or id, {line .. (lost ~= '0' and lost ~= '' and '@' .. lost or '')})
      want(string.sub(lane, 3), true)
    end
  else
    claims[#claims + 1] = claim
    claims[#claims + 1] = line
    out[#out + 1] = line
    out[#out + 1] = string.match(rec or '', '^W|%d*|%d*|%d*|') or rec -- without its input
  end
end
bulk('ZREM', agenda, over)
bulk('ZADD', agenda, claims)
local nxt = redis.call('ZRANGE', agenda, 0, 0, 'WITHSCORES')
if nxt[2] then out[2] = nxt[2] end
out[3] = redis.call('ZCARD', agenda)
saveDepth()
return out
