package archive

// turnKey is the string with the process that archives. Expires half a minute after its last round.
const turnKey = "muster:{archive}:turn"

// stateKey is a hash: error, the last one, and since (unix ms), both absent while workflows are archived, and missed, how many workflows about were
// dropped before they were archived. No expiry.
const stateKey = "muster:{archive}:state"
