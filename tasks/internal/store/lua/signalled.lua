-- signalled returns the next signal of a task to deliver, or removes the agenda's entry for it if there is none.
-- KEYS as in lib
-- ARGV[1] reference of the workflow, [2] task
-- returns {open node, id of the signal, value}, or {}
local ref, task = ARGV[1], ARGV[2]
local kept = redis.call('HGET', P .. 'w:' .. ref, SIGNALS .. task)
local node = kept and firstOpen(ref, task)
if node then return {node, string.match(kept, '^(%S+) ([^\n]*)\n')} end
redis.call('ZREM', P .. 'agenda', ref .. '/!signal ' .. task)
return {}
