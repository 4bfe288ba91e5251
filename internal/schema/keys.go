package schema

// schemaKey is a hash about the store as a whole. It does not expire.
//
//	version         the schema: the number of the migration that was done last
//	done:N          when migration N was done (unix ms)
//	holder          the process that has the lock
//	until token     when the lock ends unless it is renewed (unix ms); its number, which only grows: the unix µs at which
//	                it was taken, or more
const schemaKey = "muster:schema"

// FenceKey is a string: the token of the process that may migrate the keys of a hash slot. It does not expire: a process
// can be frozen for any time.
func FenceKey(slot string) string { return "muster:{" + slot + "}:fence" }
