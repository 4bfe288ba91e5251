-- tally adds to the counts of tasks.
-- KEYS as in lib
-- ARGV groups of four: queue, task, kind, number; kind is as in count, or a bucket of durations
-- returns 1
for i = 1, #ARGV, 4 do
  local queue, task, kind, n = unpack(ARGV, i, i + 3)
  if tonumber(kind) then lasted(queue, task, kind, tonumber(n)) else count(queue, task, kind, tonumber(n)) end
end
counted()
return 1
