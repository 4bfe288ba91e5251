-- tally adds to the counts of tasks.
-- KEYS as in lib
-- ARGV groups of four: queue, task, counter, number; counter is an outcome as in count, or a bucket of durations
-- returns 1
for i = 1, #ARGV, 4 do
  local queue, task, what, n = unpack(ARGV, i, i + 3)
  if tonumber(what) then lasted(queue, task, what, tonumber(n)) else count(queue, task, what, tonumber(n)) end
end
counted()
return 1
