-- Counts the assignments that agents hold. Reservations end sooner than any of
-- them, and are not counted.
-- KEYS: held, one for each agent. ARGV: ms of a reservation.
-- Returns a list of the numbers.
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local out = {}
for i, key in ipairs(KEYS) do
  out[i] = redis.call("ZCOUNT", key, "(" .. string.format("%.0f", now + tonumber(ARGV[1])), "+inf")
end
return out
