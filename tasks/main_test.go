package tasks_test

import (
	"flag"
	"testing"

	"muster/internal/redistest"
)

func TestMain(m *testing.M) {
	// Many tests wait for intervals of Redis or of a worker.
	set := map[string]string{"test.parallel": "8"}
	flag.Parse()
	if f := flag.Lookup("rapid.checks"); testing.Short() && f.Value.String() == f.DefValue {
		set["rapid.checks"] = "500" // with -short, rapid divides it by five
	}
	for name, value := range set {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	redistest.Main(m)
}
