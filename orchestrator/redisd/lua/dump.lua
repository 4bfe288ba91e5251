-- Returns the contents of every database, all of one moment.
--
-- Only for miniredis, which allows SELECT and KEYS in scripts and blocks on
-- them as a Redis would.
--
-- KEYS: none
-- ARGV: [1] number of databases to look at
-- returns a list of keys, each {db, key, type, ttl in ms or -1, values} with
--   string  values = {value}
--   list    values = {element, …}
--   set     values = {member, …}
--   zset    values = {member, score, …}
--   hash    values = {field, value, …}, then {field, ttl in ms, …} of fields with one
--   stream  values = {{id, {field, value, …}}, …}, then {group, …}, each
--           {name, last delivered id, {consumer, …}, {{id, consumer, idle ms, deliveries}, …}}
--   others  values = {}

-- value finds what follows a name in a flat list of names and values.
local function value(list, name)
  for i = 1, #list, 2 do
    if list[i] == name then return list[i + 1] end
  end
end

local read = {
  string = function(key) return {redis.call('GET', key)} end,
  list = function(key) return redis.call('LRANGE', key, 0, -1) end,
  set = function(key) return redis.call('SMEMBERS', key) end,
  zset = function(key) return redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end,
  hash = function(key)
    local all, expiring = redis.call('HGETALL', key), {}
    local fields = {}
    for i = 1, #all, 2 do
      fields[#fields + 1] = all[i]
      if #fields == 500 or i + 1 == #all then
        local ttls = redis.call('HPTTL', key, 'FIELDS', #fields, unpack(fields))
        for j, ttl in ipairs(ttls) do
          if ttl >= 0 then
            expiring[#expiring + 1] = fields[j]
            expiring[#expiring + 1] = ttl
          end
        end
        fields = {}
      end
    end
    return all, expiring
  end,
  stream = function(key)
    local groups = {}
    for _, info in ipairs(redis.call('XINFO', 'GROUPS', key)) do
      local name, consumers = value(info, 'name'), {}
      for _, c in ipairs(redis.call('XINFO', 'CONSUMERS', key, name)) do
        consumers[#consumers + 1] = value(c, 'name')
      end
      local pending = redis.call('XPENDING', key, name, '-', '+', 2147483647)
      groups[#groups + 1] = {name, value(info, 'last-delivered-id'), consumers, pending}
    end
    return redis.call('XRANGE', key, '-', '+'), groups
  end,
}

local out = {}
for db = 0, tonumber(ARGV[1]) - 1 do
  redis.call('SELECT', db)
  for _, key in ipairs(redis.call('KEYS', '*')) do
    local kind = redis.call('TYPE', key).ok
    local ttl = redis.call('PTTL', key)
    local values, more = {}, {}
    if read[kind] then values, more = read[kind](key) end
    out[#out + 1] = {db, key, kind, ttl, values, more or {}}
  end
end
return out
