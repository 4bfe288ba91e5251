package record

import (
	"hash/maphash"

	"muster/sites/sink"
)

// delivered has the hashes of records that each sink has received but that are not yet in all files and sinks, by address.
type delivered map[string]map[uint64]struct{}

var recordSeed = maphash.MakeSeed()

// recordID identifies a record of a job within this process.
func recordID(r sink.Record) uint64 {
	var h maphash.Hash
	h.SetSeed(recordSeed)
	for _, part := range []string{r.Type, r.Key, r.Change} {
		_, _ = h.WriteString(part) // never fails
		_ = h.WriteByte(0)
	}
	_, _ = h.Write(r.Data)
	return h.Sum64()
}

// add adds the records that a sink has received.
func (d *delivered) add(address string, records []sink.Record) {
	if len(records) == 0 {
		return
	}
	if *d == nil {
		*d = delivered{}
	}
	ids := (*d)[address]
	if ids == nil {
		ids = make(map[uint64]struct{}, len(records))
		(*d)[address] = ids
	}
	for _, r := range records {
		ids[recordID(r)] = struct{}{}
	}
}

// missing returns the records that a sink has not received.
func (d delivered) missing(address string, records []sink.Record) []sink.Record {
	ids := d[address]
	if len(ids) == 0 {
		return records
	}
	left := make([]sink.Record, 0, len(records))
	for _, r := range records {
		if _, ok := ids[recordID(r)]; !ok {
			left = append(left, r)
		}
	}
	return left
}
