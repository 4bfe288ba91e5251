// Package histogram reads histograms that scripts store in a Redis hash, so that all processes share them and they survive a restart.
//
// A script counts a duration in the fields "NAME BOUND", where BOUND is the first bound that is not below the duration, or +Inf, and
// "NAME ms", the sum.
package histogram

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Bounds are the upper bounds of a histogram in seconds, in ascending order. They may be changed: counts of a removed bound move to
// the next higher bound.
type Bounds []float64

// Text returns the bounds as a space-separated list for scripts.
func (b Bounds) Text() string {
	texts := make([]string, len(b))
	for i, bound := range b {
		texts[i] = strconv.FormatFloat(bound, 'f', -1, 64)
	}
	return strings.Join(texts, " ")
}

// Metric returns the histogram called name in a hash.
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
				buckets[upper] += n // buckets are cumulative
			}
		}
	}
	return prometheus.MustNewConstHistogram(desc, count, sum, buckets, labels...)
}
