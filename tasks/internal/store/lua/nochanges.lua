-- Put behind lib in front of turn, for a turn that ends no batch and changes nothing: it needs no other functions.
-- KEYS and ARGV are those of turn
-- returns nothing: it declares what turn does not call
local giveBack, flow, counted
