package access

// keys are the Redis keys of package access. They share the hash tag {access}.
type keys struct{ prefix string }

func newKeys() keys { return keys{"muster:{access}:"} }

// index is a sorted set: key ID → creation time (Unix ms). It does not expire.
func (k keys) index() string { return k.prefix + "keys" }

// record is a hash of an API key: name, role, hash (hex SHA-256 of its secret), created, expires, revoked and used (Unix ms;
// absent: never). It does not expire.
func (k keys) record(id string) string { return k.prefix + "key:" + id }

// audit is a stream of mutating calls: the field entry is an Entry as JSON. Each append trims it to about 100,000. It does not
// expire.
func (k keys) audit() string { return k.prefix + "audit" }
