package schema

// schemaKey is a hash with the state of the store. It does not expire.
//
//	version         the schema version: the number of the last completed migration
//	done:N          completion time of migration N (Unix ms)
//	holder          the process that holds the lock
//	until token     expiry of the lock (Unix ms), and its increasing token: at least the Unix µs at which it was acquired
const schemaKey = "muster:schema"

// FenceKey is a string: the token of the process that may migrate the keys of a hash slot. It does not expire, because a process
// can be frozen for any duration.
func FenceKey(slot string) string { return "muster:{" + slot + "}:fence" }
