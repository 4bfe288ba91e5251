-- rebase bounds the times of a part of the agenda after the clock was set back: no entry waits longer than when it was set.
-- KEYS as in lib
-- ARGV[1] cursor, '0' at first, [2] ms that a note on progress waits, [3] ms that any other step waits
-- returns {next cursor, '0' at the end; number of entries that were due too late}
local agenda, moved = P .. 'agenda', 0
local page = redis.call('ZSCAN', agenda, ARGV[1], 'COUNT', 500)

-- longest returns how many ms an entry waits, or nil if it has a fixed time. shift writes its record with times that are
-- by so many ms earlier.
local function longest(wf, node)
  if node == '!progress' then return tonumber(ARGV[2]) end
  if node == '!deadline' then return nil end
  if wf == P .. 'w:!limit' then return tonumber(ARGV[3]) end
  if string.find(node, '^[^!].*%-') then -- a span
    local spans = redis.call('HGET', wf, SPANS) or ''
    for line, at, wait, expires in string.gmatch(spans, '(%S+) (%d+) (%d*) (%d*) [^\n]*\n') do
      if line == node and at ~= '0' then
        return tonumber(wait), function(ms)
          local lasts = expires ~= '' and whole(expires - ms) or ''
          local from, to = string.find(spans, table.concat({node, at, wait, expires}, ' '), 1, true)
          redis.call('HSET', wf, SPANS, string.sub(spans, 1, from - 1) .. table.concat({node, whole(at - ms), wait, lasts}, ' ') .. string.sub(spans, to + 1))
        end
      end
    end
    return nil
  end
  local rec = redis.call('HGET', wf, node) or ''
  local head, at, wait, expires, tail = string.match(rec, '^([{DELAYED}{RETRYING}]|%d*|%d*|)(%d*)|(%d*)|(%d*)(|.*)$')
  if head then
    return tonumber(wait), function(ms)
      local lasts = expires ~= '' and whole(expires - ms) or ''
      redis.call('HSET', wf, node, head .. whole(at - ms) .. '|' .. wait .. '|' .. lasts .. tail)
    end
  end
  head, at, wait, tail = string.match(rec, '^({OPEN}|%d*|%d*|)(%d+)|(%d+)(|.*)$')
  if head then
    return tonumber(wait), function(ms) redis.call('HSET', wf, node, head .. whole(at - ms) .. '|' .. wait .. tail) end
  end
  return tonumber(ARGV[3])
end

for i = 1, #page[2], 2 do
  local line, due = page[2][i], tonumber(page[2][i + 1])
  local id, node = string.match(line, '^([^/]+)/(.+)$')
  if id and due > now then
    local wait, shift = longest(P .. 'w:' .. id, node)
    if wait and due - now > wait then
      if shift then shift(due - now - wait) end
      redis.call('ZADD', agenda, whole(now + wait), line)
      moved = moved + 1
    end
  end
end
if page[1] == '0' then redis.call('SET', P .. 'clock', whole(now)) end
return {page[1], moved}
