package tasks_test

import (
	"flag"
	"muster/tasks/redistest"
	"testing"
)

func TestMain(m *testing.M) {
	// Many tests wait for what Redis or a worker does at its own time.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	redistest.Main(m)
}
