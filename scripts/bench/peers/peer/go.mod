module muster/scripts/bench/peers/peer

go 1.26.0
