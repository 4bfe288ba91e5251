module muster/scripts/peers/peer

go 1.26.0
