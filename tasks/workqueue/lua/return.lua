-- Returns leases: the items keep their place, no attempt is counted.
-- KEYS: common.lua. ARGV: per lease id, token.
-- Returns per lease 1 returned (also if it was before), 0 lost.
local out, moved = {}, 0
for i = 1, #ARGV, 2 do
  local id, token = ARGV[i], tonumber(ARGV[i + 1])
  local r = load(id)
  local code = 0
  if r and not sealed and r.token == token then
    if r.state == "i" then
      putBack(id, r)
      moved = moved + 1
      code = 1
    elseif r.state == "q" or r.state == "w" then
      code = 1
    end
  end
  out[#out + 1] = code
end
finish(moved)
return out
