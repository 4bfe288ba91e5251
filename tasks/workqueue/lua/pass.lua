-- Gives up a lease and makes its item ready as another one of the same id.
-- KEYS: common.lua. ARGV: id, token, item as become takes it.
-- Returns 1 passed (also if it was before, by this lease), 0 lost, -1 no such
-- item.
local id, token = ARGV[1], tonumber(ARGV[2])
local r = load(id)
if not r then return -1 end
if r.token ~= token or r.state ~= "i" then
  local by = string.match(redis.call("HGET", SPEC, id) or "", '^{"passed":(%d+)')
  return tonumber(by) == token and 1 or 0
end
if sealed then return 0 end
become(id, r, 3)
return 1
