package record

import (
	"fmt"
	"os"
	"testing"

	"muster/tasks/redistest"
)

func TestMain(m *testing.M) {
	if args := os.Getenv(writerChildEnv); args != "" {
		if err := writerChild(args); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	redistest.Main(m)
}
