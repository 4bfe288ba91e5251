package schema

// schemaKey is a hash: the field version is the number of the last completed migration. It does not expire.
const schemaKey = "muster:schema"

// lockKey is a string: the process that migrates the store. It expires after Store.Lease without renewal.
const lockKey = "muster:schema:lock"
