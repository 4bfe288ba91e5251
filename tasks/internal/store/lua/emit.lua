-- emit stores output of a node, for the worker that has the lease of the node, and deletes the oldest chunks beyond the limits.
-- KEYS as in lib
-- ARGV[1] reference of the workflow, [2] node, [3] worker, [4] value of its lease, [5] number of chunks to keep, [6] number of their bytes, [7] number of
-- chunks that were dropped before these, [8] name of the call, [9] and others: up to 1,000 chunks
-- returns 1, or 0 if the worker has lost the lease or there is no such workflow
local w, node = P .. 'w:' .. ARGV[1], ARGV[2]
local ttl = redis.call('PTTL', w)
if ttl == -2 or redis.call('HGET', P .. 'lease:' .. ARGV[3], ARGV[1] .. '/' .. node) ~= ARGV[4] then return 0 end
local out = w .. ':out'
local have = redis.call('HMGET', out, node, 'nodes')
local first, last, bytes, call = string.match(have[1] or '1 0 0', '^(%d+) (%d+) (%d+) ?(.*)$')
if call == ARGV[8] then return 1 end -- its reply was lost
first, last, bytes = tonumber(first), tonumber(last), tonumber(bytes)
local puts, stored, gap = {}, last, tonumber(ARGV[7])
if not have[1] then
  puts = {'nodes', have[2] and have[2] .. ' ' .. node or node}
  redis.call('HSET', w, OUTPUT, '1')
end
local function drop(upTo)
  while first <= upTo do
    if gap > 0 and first == stored + 1 then
      first = first + gap
    else
      bytes = bytes - redis.call('HSTRLEN', out, node .. '/' .. whole(first))
      redis.call('HDEL', out, node .. '/' .. whole(first))
      first = first + 1
    end
  end
end
last = last + gap
for i = 9, #ARGV do
  last = last + 1
  bytes = bytes + #ARGV[i]
  puts[#puts + 1] = node .. '/' .. whole(last)
  puts[#puts + 1] = ARGV[i]
end
redis.call('HSET', out, unpack(puts))
drop(last - ARGV[5])
while bytes > tonumber(ARGV[6]) do drop(first) end
redis.call('HSET', out, node, whole(first) .. ' ' .. whole(last) .. ' ' .. whole(bytes) .. ' ' .. ARGV[8])
if ttl >= 0 then redis.call('PEXPIRE', out, ttl) end
redis.call('PUBLISH', channel('changed:' .. ARGV[1]), '')
return 1
