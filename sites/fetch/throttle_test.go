package fetch

import (
	"testing"
	"time"
)

func TestThrottle(t *testing.T) {
	t.Parallel()
	var th throttle
	for range 20 {
		th.observe(100*time.Millisecond, true)
	}
	if d := th.delay(); d > 30*time.Millisecond {
		t.Errorf("a steady site is delayed by %s", d)
	}
	th.observe(2*time.Second, true)
	if d := th.delay(); d < 1500*time.Millisecond {
		t.Errorf("after an answer of 2 s the delay is %s, want it to rise at once", d)
	}
	high := th.delay()
	th.observe(10*time.Millisecond, false)
	if d := th.delay(); d < high {
		t.Errorf("a quick error lowers the delay from %s to %s", high, d)
	}
	th.observe(100*time.Millisecond, true)
	if d := th.delay(); d < high/3 || d >= high {
		t.Errorf("a quick answer lowers the delay from %s to %s, want about half", high, d)
	}
	for range 20 {
		th.observe(time.Hour, true)
	}
	if d := th.delay(); d > maxThrottle {
		t.Errorf("the delay grows to %s", d)
	}
}
