-- Inserted between lib and turn, for a turn that ends no batch and changes nothing. KEYS and ARGV are those of turn. Returns
-- nothing: it declares the functions that this variant of turn does not call.
local giveBack, flow, counted
