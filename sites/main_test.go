package sites

import (
	"fmt"
	"os"
	"testing"

	"muster/tasks/redistest"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(writerChildEnv); url != "" {
		if err := writerChild(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	redistest.Main(m)
}
