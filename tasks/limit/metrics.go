package limit

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Collector collects the use of limits. Keys are hosts and similar names in unlimited numbers, so they are counted
// and not used as labels.
type Collector struct {
	slots   map[string]*KeyedLimiter
	breaker *Breaker
}

var (
	slotsUsed = prometheus.NewDesc("muster_limit_slots_used",
		"Slots held by this process, by limiter: host or resolver.", []string{"limiter"}, nil)
	slotsWaiting = prometheus.NewDesc("muster_limit_slots_waiting",
		"Callers in this process waiting for a slot, by limiter.", []string{"limiter"}, nil)
	breakersOpen = prometheus.NewDesc("muster_limit_breakers",
		"Breakers of sites and hosts that are open or half-open, in all processes.", []string{"state"}, nil)
)

// NewCollector returns the collector of limiters by name, such as "host", and of a breaker. Either may be nil.
func NewCollector(slots map[string]*KeyedLimiter, breaker *Breaker) *Collector {
	return &Collector{slots, breaker}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{slotsUsed, slotsWaiting, breakersOpen} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. It reads the breakers from Redis with a timeout of 2 s, and omits them on
// failure.
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

// use returns the number of slots held by this process and of its waiters.
func (l *KeyedLimiter) use() (held, waiting int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		waiting += len(line)
	}
	return len(l.held), waiting
}
