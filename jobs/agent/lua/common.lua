-- Prefix of all scripts: clock returns the time in unix ms.
local function clock()
  local time = redis.call("TIME")
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
