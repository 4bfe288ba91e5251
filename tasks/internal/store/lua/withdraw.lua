-- withdraw removes ready nodes of a revoked workflow from their lists. A take drops those that are left.
-- KEYS as in lib
-- ARGV[1] reference of the workflow, [2] span of its first nodes, or '', then the lanes of the workflow
-- returns 1
unready(ARGV[1], redis.call('HGET', P .. 'w:' .. ARGV[1], FAIRNESS), ARGV[1] .. '/' .. ARGV[2], {unpack(ARGV, 3)})
saveDepth()
return 1
