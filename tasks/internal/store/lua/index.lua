-- (index)
local function opened(id, name) end
local function ended(id, name, letter, created) end
local function dropped(id, name) end
local function count(queue, task, what, n) end
local function counted() end
