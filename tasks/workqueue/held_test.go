package workqueue

import (
	"testing"
	"time"
)

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
