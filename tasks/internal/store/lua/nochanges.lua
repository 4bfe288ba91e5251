-- Inserted between lib and turn, for a turn without a batch and changes. KEYS and ARGV of turn. Returns nothing: it
-- declares the functions that this variant of turn does not call.
local giveBack, flow, counted
