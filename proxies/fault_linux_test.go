package proxies

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"muster/internal/testutil/faultdisk"
	"muster/tasks/redistest"
)

// Whichever call to the disk fails while the pool is exported, each file has the old list or the new one, and the next
// export writes all.
func TestEachFailingCallOfAnExport(t *testing.T) {
	t.Parallel()
	var pools [2]*Pool
	for i := range pools {
		pools[i] = newPool(t, redistest.Mini(t), nil)
		mustPublish(t, pools[i], result(uint16(i+1), nil))
	}
	count := func(dir string) (newer int) {
		if list, err := ReadExport(filepath.Join(dir, ExportJSON)); !errors.Is(err, fs.ErrNotExist) {
			if err != nil || len(list) != 1 {
				t.Errorf("got %v, %v, want one proxy", list, err)
			} else if list[0].Port == 2 {
				newer++
			}
		}
		text, err := os.ReadFile(filepath.Join(dir, ExportText))
		switch string(text) {
		case "http://u:secret@8.8.8.8:2\n":
			newer++
		case "http://u:secret@8.8.8.8:1\n":
		default:
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("got %q, %v, want one proxy", text, err)
			}
		}
		return newer
	}
	faultdisk.Each(t, func(dir string) error {
		for _, pool := range pools {
			if _, err := pool.Export(context.Background(), dir, "json", "text"); err != nil {
				return err
			}
		}
		return nil
	}, func(dir string, failed faultdisk.Call, err error) {
		if got := count(dir); err == nil && got != 2 {
			t.Errorf("%s fails: got %d files with the new list and no error, want 2", failed, got)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 && failed.Name != "remove" {
			t.Errorf("%s fails: got %v left behind, want none", failed, left)
		}
		if _, err := pools[1].Export(context.Background(), dir, "json", "text"); err != nil || count(dir) != 2 {
			t.Errorf("%s failed: got %v when the disk is well again, want both files new", failed, err)
		}
	})
}
