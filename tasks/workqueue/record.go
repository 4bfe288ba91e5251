package workqueue

import (
	"strconv"
	"strings"
)

// recordFields is how many fields a record has, see lua/common.lua; the last is
// the lane, which may hold spaces.
const recordFields = 9

// placeOf returns the place of a record's item among the ready items. Later items have higher places.
func placeOf(record string) int64 {
	f := strings.SplitN(record, " ", recordFields)
	if len(f) != recordFields {
		return 0
	}
	n, _ := strconv.ParseInt(f[5], 10, 64)
	return n
}
