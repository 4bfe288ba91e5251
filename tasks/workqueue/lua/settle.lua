-- Ends leased items, stores their results, appends their outputs and adds the
-- items that they led to.
-- KEYS: common.lua. ARGV: most items of the queue (0: no limit), then per lease
-- id, token, state d|s|e, note, result given 0|1, result, number of outputs,
-- number of items, the outputs, and the items as insert takes them.
-- Each output contains the total size of all earlier outputs.
-- -- Returns per lease 1 settled (also if this lease settled it before), 0 lost, -1 no such item, and then, if the
-- queue counts by lane, how many items of the lane of the last one wait or are in progress.
local most = tonumber(ARGV[1])
local out, moved, i = {}, 0, 2
local written, lane
while i <= #ARGV do
  local id, token, state, note = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2], ARGV[i + 3]
  local n, items = tonumber(ARGV[i + 6]), tonumber(ARGV[i + 7])
  local r = load(id)
  local code = 0
  lane = r and r.lane
  if not r then
    code = -1
  elseif r.token == token and r.state == state then
    code = 1
  elseif r.token == token and r.state == "i" and not sealed then
    code = 1
    moved = moved + 1
    metaChanges.settled = string.format("%.0f", now)
    leave(id, r)
    setNote(id, note)
    if ARGV[i + 4] == "1" then redis.call("HSET", RESULT, id, ARGV[i + 5]) end
    for k = 1, n do
      local data = ARGV[i + 7 + k]
      written = written or number(redis.call("HGET", META, "out_bytes"))
      redis.call("XADD", OUT, "*", "id", id, "n", k - 1, "before", string.format("%.0f", written), "data", data)
      written = written + #data
      add(delta, "out_bytes", #data)
    end
    moved = moved + insert(i + 7 + n, items, most)
    conclude(id, r, state, note)
  end
  out[#out + 1] = code
  i = i + 8 + n + 7 * items
end
if byLane and lane then wanted = { "queued\0" .. lane, "in_progress\0" .. lane } end
finish(moved)
if #wanted > 0 then out[#out + 1] = totals[wanted[1]] + totals[wanted[2]] end
return out
