package tasks_test

import (
	"flag"
	"muster/tasks/redistest"
	"testing"
)

func TestMain(m *testing.M) {
	// Many tests wait for intervals of Redis or of a worker.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	redistest.Main(m)
}
