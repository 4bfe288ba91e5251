-- Shared by the scripts that take ready nodes of a workflow off their lists; appended to lib.
-- KEYS as in lib
-- returns nothing: it defines unready

-- unready removes the ready nodes of a workflow with a fairness key, or false, from their lists. first is the element with its first nodes. On
-- the list of a key that other workflows have, too, it searches for these only, unless deaths are given: so many may have died with a node.
local function unready(ref, key, first, lanes, deaths)
  for _, lane in ipairs(lanes) do
    local q, list, n = string.sub(lane, 3), P .. 'ready:' .. lane .. ':' .. (key or ref), 0
    for _, el in ipairs((deaths or not key) and redis.call('LRANGE', list, 0, -1) or {first}) do
      if string.sub(el, 1, #ref + 1) == ref .. '/' and redis.call('LREM', list, 1, el) == 1 then n = n + size(el) end
    end
    if n > 0 and redis.call('EXISTS', list) == 0 then unlist(lane, key or ref) end
    if string.sub(lane, 1, 1) == 'n' then
      for k = 0, deaths or 0 do redis.call('LREM', P .. 'ring:' .. q, 1, k > 0 and ref .. '@' .. whole(k) or ref) end
      if redis.call('LREM', P .. 'ring:' .. q, 1, first) == 1 then -- the ring itself has no other elements of the workflow: see submit
        n = n + size(first)
        deepen('k:' .. q, -1)
      end
    end
    deepen(lane, -n)
  end
end
