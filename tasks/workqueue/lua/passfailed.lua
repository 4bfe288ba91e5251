-- Makes an item in state error ready as another one of the same id.
-- KEYS: common.lua. ARGV: id, data of the ending, item as become takes it.
-- Returns "ok", "sealed", or the state letter of the item, "" if there is none.
local id = ARGV[1]
local r = load(id)
if not r then return "" end
if r.state ~= "e" then return r.state end
if sealed then return "sealed" end
if endings then redis.call("XADD", OUT, "*", "id", id, "state", "d", "lane", r.lane, "note", "", "data", ARGV[2]) end
become(id, r, 3)
return "ok"
