-- Inserted in front of tick, for a tick that sends nothing. KEYS and ARGV of tick. Returns nothing: it declares the function that this
-- variant of tick does not call.
local submit
