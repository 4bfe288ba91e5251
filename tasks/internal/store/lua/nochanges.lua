-- Inserted between lib and turn, for a turn without leases and changes. KEYS and ARGV of turn. Returns nothing: it
-- declares the functions that this variant of turn does not call.
local giveBack, flow, counted
