-- Edits a job if it still has the version.
-- KEYS: common.lua, then 5 context, the indexes that it leaves, the indexes that it enters.
-- ARGV: id, version, type of the event, its data, number of indexes that it leaves, context for its own key or "", then fields and values.
-- Returns {1, new version}, {0, version} if it has another, {-1, 0} if it does not exist, or {-2, 0} if it has ended.
clock()
local id, version, leaves = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[5])
local at = redis.call("HMGET", RECORD, "version", "status", "seq")
if not at[1] then return { -1, 0 } end
if at[2] ~= "created" and at[2] ~= "processing" then return { -2, 0 } end
if tonumber(at[1]) ~= version then return { 0, tonumber(at[1]) } end
for i = 6, 5 + leaves do redis.call("ZREM", KEYS[i], id) end
for i = 6 + leaves, #KEYS do redis.call("ZADD", KEYS[i], at[3], id) end
redis.call("HSET", RECORD, "version", version + 1, "updated", stamp, unpack(ARGV, 7))
if ARGV[6] ~= "" then redis.call("SET", KEYS[5], ARGV[6]) end
emit(ARGV[3], id, ARGV[4])
return { 1, version + 1 }
