// Package histogram reads histograms that scripts keep in a Redis hash, so that
// all processes count together and a restart loses nothing.
//
// A script counts a time with the fields "NAME BOUND", where BOUND is the first
// of the bounds that is not below it, or +Inf, and "NAME ms", the sum.
package histogram

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Bounds are the upper bounds of a histogram in seconds, rising. They may be
// changed: what was counted by a bound that is gone counts as longer than the
// bounds below it.
type Bounds []float64

// Text is how a script gets the bounds: one after the other, with spaces.
func (b Bounds) Text() string {
	texts := make([]string, len(b))
	for i, bound := range b {
		texts[i] = strconv.FormatFloat(bound, 'f', -1, 64)
	}
	return strings.Join(texts, " ")
}

// Metric returns the histogram of a name as a hash has it.
func (b Bounds) Metric(desc *prometheus.Desc, hash map[string]string, name string, labels ...string) prometheus.Metric {
	var count uint64
	sum := 0.0
	buckets := map[float64]uint64{}
	for _, bound := range b {
		buckets[bound] = 0
	}
	for field, text := range hash {
		of, bound, _ := strings.Cut(field, " ")
		n, err := strconv.ParseUint(text, 10, 64)
		if of != name || err != nil {
			continue
		}
		if bound == "ms" {
			sum = float64(n) / 1000
			continue
		}
		at, err := strconv.ParseFloat(bound, 64)
		if err != nil {
			continue
		}
		count += n
		for _, upper := range b {
			if at <= upper {
				buckets[upper] += n // they are cumulative
			}
		}
	}
	return prometheus.MustNewConstHistogram(desc, count, sum, buckets, labels...)
}
