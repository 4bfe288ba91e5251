-- finish forgets tasks that are done, as asynq's done script does. One that is not active was taken
-- away from its worker, and is left alone.
-- KEYS[1] active, [2] lease, [3] processed today, [4] processed, [5..] task hashes, one for each item
-- ARGV[1] when the count of today expires (unix s), [2] largest count, [3] number of items, then per item:
-- number of its arguments, task id
-- returns per item 1, or 0 if it was not active
local out, ids, keys, p = {}, {}, {}, 4
for i = 1, tonumber(ARGV[3]) do
  out[i] = redis.call('LREM', KEYS[1], '-1', ARGV[p + 1])
  if out[i] == 1 then
    ids[#ids + 1] = ARGV[p + 1]
    keys[#keys + 1] = KEYS[4 + i]
  end
  p = p + 1 + tonumber(ARGV[p])
end
if #ids > 0 then
  redis.call('ZREM', KEYS[2], unpack(ids))
  redis.call('DEL', unpack(keys))
  if redis.call('INCRBY', KEYS[3], #ids) == #ids then redis.call('EXPIREAT', KEYS[3], ARGV[1]) end
  local total = redis.call('GET', KEYS[4])
  if total and tonumber(total) >= tonumber(ARGV[2]) - #ids then
    redis.call('SET', KEYS[4], #ids)
  else
    redis.call('INCRBY', KEYS[4], #ids)
  end
end
return out
