package record

import (
	"testing"

	"muster/tasks/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }
