-- Adds the items that are not in the queue yet; leaves the others as they are.
-- KEYS: common.lua. ARGV: id and token of a lease without which nothing is added
-- ("" if there is none), 1 to count by lane from the first item on or else 0, 1 to
-- keep endings or else 0, most items of the queue (0: no limit), ms after which
-- ended items are forgotten (0: never), then items as insert takes them.
-- Returns how many were new, -1 if the lease was lost, -2 if the queue
-- is sealed.
if sealed then return -2 end
if ARGV[1] ~= "" then
  local holder = load(ARGV[1])
  if not holder or holder.state ~= "i" or holder.token ~= tonumber(ARGV[2]) then return -1 end
end
if ARGV[3] == "1" and not byLane and redis.call("EXISTS", REC) == 0 then
  redis.call("HSET", META, "lanes", 1)
  byLane = "1"
end
if ARGV[4] == "1" and not endings then redis.call("HSET", META, "endings", 1) end
if ARGV[6] ~= (keep or "0") then
  keep = ARGV[6] ~= "0" and ARGV[6] or nil
  if keep then redis.call("HSET", META, "keep", keep) else redis.call("HDEL", META, "keep") end
end
local HEAD = 6
local added = insert(HEAD, (#ARGV - HEAD) / 7, tonumber(ARGV[5]))
finish(added)
return added
