package access

// keys are the Redis keys of access. They share the hash tag {access}.
type keys struct{ prefix string }

func newKeys() keys { return keys{"muster:{access}:"} }

// index is a sorted set: id of a key → unix ms when it was created. It does not expire.
func (k keys) index() string { return k.prefix + "keys" }

// record is a hash of a key: name, role, hash (SHA-256 of its secret in hex), created, expires, revoked and used (unix
// ms; absent: never). It does not expire.
func (k keys) record(id string) string { return k.prefix + "key:" + id }

// volatile is a string that is set in a Redis which loses its data when it stops. It does not expire.
func (k keys) volatile() string { return k.prefix + "volatile" }

// audit is a stream of changing calls: the fields of an Entry but its id and time. It is trimmed by count and age with
// each entry, and expires when its last entry is too old.
func (k keys) audit() string { return k.prefix + "audit" }
