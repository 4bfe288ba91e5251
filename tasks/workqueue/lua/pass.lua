-- Makes an item ready as another one of the same id: one in progress under its lease, or else one in state error.
-- KEYS: common.lua. ARGV: id, token or "", data of the ending of one in state error, item as become takes it.
-- Returns "ok", also if the lease passed it before; "sealed"; or the state letter of the item, "" if there is none.
local id, token = ARGV[1], tonumber(ARGV[2])
local r = load(id)
if not r then return "" end
if r.state ~= (token and "i" or "e") or token and r.token ~= token then
  local by = string.match(redis.call("HGET", SPEC, id) or "", '^{"passed":(%d+)')
  return token and tonumber(by) == token and "ok" or r.state
end
if sealed then return "sealed" end
if not token and endings then redis.call("XADD", OUT, "*", "id", id, "state", "d", "lane", r.lane, "note", "", "data", ARGV[3]) end
become(id, r, 4)
return "ok"
