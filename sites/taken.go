package sites

import (
	"hash/maphash"

	"muster/sites/sink"
)

// taken remembers what each sink has taken of records that are not safe
// everywhere yet. Nil is one that remembers nothing.
type taken map[string]map[uint64]struct{} // by address

var takenSeed = maphash.MakeSeed()

// takenID tells records apart, of one job and in one process.
func takenID(r sink.Record) uint64 {
	var h maphash.Hash
	h.SetSeed(takenSeed)
	for _, part := range []string{r.Type, r.Key, r.Change} {
		_, _ = h.WriteString(part) // never fails, as the others here
		_ = h.WriteByte(0)
	}
	_, _ = h.Write(r.Data)
	return h.Sum64()
}

// add notes that a sink has taken records.
func (t *taken) add(address string, records []sink.Record) {
	if len(records) == 0 {
		return
	}
	if *t == nil {
		*t = taken{}
	}
	ids := (*t)[address]
	if ids == nil {
		ids = make(map[uint64]struct{}, len(records))
		(*t)[address] = ids
	}
	for _, r := range records {
		ids[takenID(r)] = struct{}{}
	}
}

// without returns the records that a sink has not taken.
func (t taken) without(address string, records []sink.Record) []sink.Record {
	ids := t[address]
	if len(ids) == 0 {
		return records
	}
	left := make([]sink.Record, 0, len(records))
	for _, r := range records {
		if _, ok := ids[takenID(r)]; !ok {
			left = append(left, r)
		}
	}
	return left
}
