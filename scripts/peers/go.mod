module muster/scripts/peers

go 1.26.0
