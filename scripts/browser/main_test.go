package browser

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"muster/internal/redistest"
)

var (
	chromium string          // path of the browser; "" if not found
	browser  context.Context // context of the browser; each test has a tab
)

// binary builds muster once, or returns MUSTER_TEST_BINARY.
var binary = sync.OnceValues(func() (string, error) {
	if file := os.Getenv("MUSTER_TEST_BINARY"); file != "" {
		return file, nil
	}
	file := filepath.Join(temporary, "muster")
	build := exec.Command("go", "build", "-C", "../..", "-o", file, "./cmd/muster")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build muster: %w: %s", err, out)
	}
	return file, nil
})

var temporary string // directory of the binary and of the browser profile

func TestMain(m *testing.M) {
	// A small machine shows few pages at a time. A limit of tabs would block tests that open a second one.
	err := flag.Set("test.parallel", "4")
	if err != nil {
		panic(err)
	}
	if temporary, err = os.MkdirTemp("", "muster-browser-"); err != nil {
		fmt.Fprintln(os.Stderr, "browser:", err)
		os.Exit(1)
	}
	chromium = find()
	stop := func() error { return nil }
	if chromium != "" {
		stop = start()
	} else {
		fmt.Fprintln(os.Stderr, "browser: Chromium not found, so the pages are NOT tested; install chromium or set MUSTER_TEST_BROWSER")
	}
	redistest.Main(m, stop, func() error { return os.RemoveAll(temporary) })
}

// find returns the path of the browser, or "".
func find() string {
	names := []string{"chromium", "chromium-browser", "google-chrome"}
	if name := os.Getenv("MUSTER_TEST_BROWSER"); name != "" {
		names = []string{name}
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// start starts the browser without a tab. The caller must call stop.
func start() (stop func() error) {
	alloc, free := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium), chromedp.UserDataDir(filepath.Join(temporary, "profile")),
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
	)...)
	var cancel context.CancelFunc
	browser, cancel = chromedp.NewContext(alloc)
	if err := chromedp.Do(browser); err != nil {
		fmt.Fprintf(os.Stderr, "browser: start %s: %v\n", chromium, err)
		os.Exit(1)
	}
	return func() error {
		err := chromedp.Cancel(browser) // waits for its exit
		cancel()
		free()
		if errors.Is(err, context.Canceled) {
			err = nil
		}
		return err
	}
}
