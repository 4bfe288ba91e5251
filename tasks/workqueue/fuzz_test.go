package workqueue

import (
	"bytes"
	"testing"
	"time"
)

// FuzzSpec checks that a valid item survives encoding and decoding, and that damaged data is an error.
func FuzzSpec(f *testing.F) {
	f.Add("a", "http.fetch", "host:a", []byte(`{"id":"a"}`), `{"k":"x"}`+"\n{}", "q 1 0 5 100 1700000000000 3 -")
	f.Add("ä\n", "", "\x1f", []byte("\n\n"), "", "")
	f.Add("a", "k", "r", []byte{0xff}, "null\n", "i 99999999999999999999 0 0 0 0 0 0")
	f.Fuzz(func(t *testing.T, id, kind, key string, payload []byte, spec, record string) {
		it := Item{ID: id, Kind: kind, ResourceKeys: []string{key}, Payload: payload}
		q := New(nil, "q", Config{})
		if q.Check(it) == nil {
			stored, err := it.spec(7)
			if err != nil {
				return // too long
			}
			got, _, err := parseSpec(id, stored)
			if err != nil || got.Kind != kind || len(got.ResourceKeys) != 1 || got.ResourceKeys[0] != key || !bytes.Equal(got.Payload, payload) {
				t.Errorf("stored %+v, read %+v, %v", it, got, err)
			}
		}
		now := time.UnixMilli(1700000000000)
		answer := []any{record, spec, "w", "note", int64(1), "result", int64(5), int64(6)}
		info, err := parseInfo(id, answer, now)
		if err == nil {
			info.setTimes(answer, now.UnixMilli(), time.Minute)
			if info.ID != id || info.State == "" {
				t.Errorf("%q: got %+v", record, info)
			}
		}
	})
}

func TestLeaseWithoutAStoredOutcomeIsNoStray(t *testing.T) {
	t.Parallel()
	h := newHeld(PoolConfig{})
	j := &job{Leased: Leased{Token: 7}}
	h.add(j)
	h.letExpire(j, time.Hour)
	h.remove(j)
	if got := h.known(); len(got) != 1 || got[0].Token != 7 {
		t.Errorf("got %v, want the lease that will expire", got)
	}
	h.letExpire(j, -1)
	if got := h.known(); len(got) != 0 {
		t.Errorf("got %v, want no lease that has expired", got)
	}
}
