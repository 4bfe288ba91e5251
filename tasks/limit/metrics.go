package limit

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Collector collects how far limits are used. Keys are hosts and the like, of
// which there may be any number, so it counts them and has no label for them.
type Collector struct {
	slots   map[string]*KeyedLimiter
	breaker *Breaker
}

var (
	slotsUsed = prometheus.NewDesc("muster_limit_slots_used",
		"Slots that this process holds, by limiter: host or resolver.", []string{"limiter"}, nil)
	slotsWaiting = prometheus.NewDesc("muster_limit_slots_waiting",
		"Callers in this process that wait for a slot, by limiter.", []string{"limiter"}, nil)
	breakersOpen = prometheus.NewDesc("muster_limit_breakers",
		"Sites and hosts whose breaker is open or half_open, in all processes.", []string{"state"}, nil)
)

// NewCollector returns the collector of limiters by their name, like "host",
// and of a breaker. Either may be nil.
func NewCollector(slots map[string]*KeyedLimiter, breaker *Breaker) *Collector {
	return &Collector{slots, breaker}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{slotsUsed, slotsWaiting, breakersOpen} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. It reads the breakers from Redis,
// for at most 2 s; without an answer it leaves them out.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, n int, label string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), label)
	}
	for name, l := range c.slots {
		used, waiting := l.use()
		gauge(slotsUsed, used, name)
		gauge(slotsWaiting, waiting, name)
	}
	if c.breaker == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	states, err := c.breaker.States(ctx)
	if err != nil {
		return
	}
	n := map[string]int{"open": 0, "half_open": 0}
	for _, s := range states {
		n[s.State]++
	}
	for state, count := range n {
		gauge(breakersOpen, count, state)
	}
}

// use counts the slots that this process holds, and its waiters.
func (l *KeyedLimiter) use() (held, waiting int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		waiting += len(line)
	}
	return len(l.held), waiting
}
