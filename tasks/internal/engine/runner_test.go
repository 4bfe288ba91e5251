package engine

import (
	"testing"
	"time"
)

// stillClock is a clock whose timers a test fires.
type stillClock struct {
	machineClock
	fire []func()
}

func (c *stillClock) AfterFunc(_ time.Duration, f func()) func() bool {
	c.fire = append(c.fire, f)
	return func() bool { return true }
}

// A suspected node that runs for long does not keep others from running.
func TestSuspectIsAloneForAtMostSomeTime(t *testing.T) {
	t.Parallel()
	c := &stillClock{}
	first := alone(c)
	if first == nil || alone(c) != nil {
		t.Fatal("want one suspected node at first")
	}
	c.fire[0]()
	second := alone(c)
	if second == nil || alone(c) != nil {
		t.Fatal("want one more after some time")
	}
	first()
	if alone(c) != nil {
		t.Error("the end of the first lets a third run beside the second")
	}
	second()
	third := alone(c)
	if third == nil {
		t.Fatal("want another one after the end of the second")
	}
	third()
}
