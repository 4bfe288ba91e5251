-- tally adds to the counts of tasks.
-- KEYS as in lib
-- ARGV groups of four: queue, task, kind, number; kind is as in count
-- returns 1
for i = 1, #ARGV, 4 do count(ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3])) end
counted()
return 1
