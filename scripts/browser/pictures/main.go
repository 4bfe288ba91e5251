// Command pictures creates docs/pictures: it runs muster demo --keep, takes screenshots of the main pages and draws the output of
// the demo. With -each DIR it also takes every page of the navigation, and the first one that it links to, at three widths and in both colours.
//
//	go -C scripts/browser run ./pictures [-browser chromium] [-out ../../docs/pictures] [-each DIR]
package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// largest is the maximum total size of the pictures in bytes.
const largest = 1_500_000

// picture is a screenshot of a page.
type picture struct {
	name, path string
	link       string // selector of a link to follow; optional
	dark       bool
	width      int64 // default: 1280
}

var pictures = []picture{
	{name: "overview", path: "/ui/"},
	{name: "overview-dark", path: "/ui/", dark: true},
	{name: "workflow", path: "/ui/tasks/workflows", link: `main td a[href*="/workflows/0"]`},
	{name: "jobs", path: "/ui/jobs"},
	{name: "sites", path: "/ui/sites"},
	{name: "proxies", path: "/ui/proxies"},
}

func main() {
	browser := flag.String("browser", "chromium", "browser executable")
	out := flag.String("out", "../../docs/pictures", "output directory")
	each := flag.String("each", "", "output directory of pictures of every page; empty for none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *browser, *out, *each)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, browser, out, each string) (err error) {
	dir, err := os.MkdirTemp("", "muster-pictures-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := filepath.Join(dir, "muster")
	if text, err := exec.CommandContext(ctx, "go", "build", "-C", "../..", "-o", file, "./cmd/muster").CombinedOutput(); err != nil {
		return fmt.Errorf("build muster: %w: %s", err, text)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	d, err := startDemo(ctx, file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	if err := os.WriteFile(filepath.Join(out, "demo.svg"), drawTerminal(d.lines), 0o644); err != nil {
		return err
	}
	if err := takePictures(ctx, browser, filepath.Join(dir, "profile"), d.base, out, each); err != nil {
		return err
	}
	return checkSize(out)
}

// demo is a running muster demo that has finished its round.
type demo struct {
	cmd   *exec.Cmd
	base  string // base URL of its pages
	lines []line
}

// line is a line of output.
type line struct {
	after time.Duration // time since the start
	text  string
}

var address = regexp.MustCompile(`(http://127\.0\.0\.1:\d+)/ui/`)

// startDemo starts the demo and returns when its round is finished.
func startDemo(ctx context.Context, file string) (*demo, error) {
	d := &demo{cmd: exec.CommandContext(ctx, file, "demo", "--keep")}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	d.cmd.Stdout, d.cmd.Stderr = w, w
	start := time.Now()
	err = d.cmd.Start()
	w.Close()
	if err != nil {
		return nil, err
	}
	for scan := bufio.NewScanner(r); scan.Scan(); {
		d.lines = append(d.lines, line{time.Since(start), scan.Text()})
		if m := address.FindStringSubmatch(scan.Text()); m != nil {
			d.base = m[1]
		}
		if strings.HasPrefix(scan.Text(), "Press Ctrl-C") {
			go func() { _, _ = io.Copy(io.Discard, r) }() // drain the remaining output
			return d, nil
		}
	}
	return nil, errors.Join(errors.New("muster demo exited too early"), d.stop())
}

// stop sends SIGINT to the demo and waits for its exit.
func (d *demo) stop() error {
	_ = d.cmd.Process.Signal(os.Interrupt) // it may have exited
	err := d.cmd.Wait()
	if code := d.cmd.ProcessState.ExitCode(); code == 130 {
		return nil
	}
	return fmt.Errorf("muster demo: %w", err)
}

// takePictures writes screenshots of the pages of a server.
func takePictures(ctx context.Context, browser, profile, base, out, each string) error {
	alloc, free := chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(browser), chromedp.UserDataDir(profile), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("disable-quic", true))...)
	defer free()
	tab, cancel := chromedp.NewContext(alloc)
	defer cancel()
	if err := write(tab, base, out, pictures); err != nil {
		return err
	}
	if each != "" {
		if err := os.MkdirAll(each, 0o755); err != nil {
			return err
		}
		all, err := everyPage(tab, base)
		if err == nil {
			err = write(tab, base, each, all)
		}
		if err != nil {
			return err
		}
	}
	return chromedp.Cancel(tab)
}

// everyPage returns pictures of the pages of the navigation, and of the first page that each of them links to.
func everyPage(tab context.Context, base string) (all []picture, err error) {
	const links = `[...new Set([...document.querySelectorAll("header nav a[href], main tbody tr:first-child a[href^='/']")].map((a) => a.getAttribute("href")))]`
	paths := []string{"/ui/"}
	for i, n := 0, 1; i < n; i++ {
		more, err := chromedp.Run(tab, func(ctx context.Context, t *chromedp.Target) ([]string, error) {
			if _, err := chromedp.NavigateResponse(base+paths[i])(ctx, t); err != nil {
				return nil, err
			}
			return chromedp.Evaluate[[]string](links)(ctx, t)
		})
		if err != nil {
			return nil, err
		}
		for _, path := range more {
			if !slices.Contains(paths, path) {
				paths = append(paths, path)
			}
		}
		if i == 0 {
			n = len(paths)
		}
	}
	for _, path := range paths {
		name := strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(path, "-"), "-")
		for _, width := range []int64{390, 800, 1280} {
			all = append(all, picture{name: fmt.Sprintf("%.60s-%d", name, width), path: path, width: width}, picture{name: fmt.Sprintf("%.60s-%d-dark", name, width), path: path, width: width, dark: true})
		}
	}
	return all, nil
}

// write takes pictures and writes them to a directory.
func write(tab context.Context, base, out string, pictures []picture) error {
	for _, p := range pictures {
		raw, err := chromedp.Run(tab, p.take(base))
		if err != nil {
			return fmt.Errorf("take a picture of %s: %w", p.path, err)
		}
		if err := os.WriteFile(filepath.Join(out, p.name+".png"), raw, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// take opens the page and takes a screenshot of at most two screens.
func (p picture) take(base string) chromedp.Action[[]byte] {
	return func(ctx context.Context, t *chromedp.Target) ([]byte, error) {
		colours := "light"
		if p.dark {
			colours = "dark"
		}
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: colours}}})
		if err != nil {
			return nil, err
		}
		if err := resize(ctx, t, cmp.Or(p.width, 1280), 800); err != nil {
			return nil, err
		}
		path := base + p.path
		for range 2 {
			res, err := chromedp.NavigateResponse(path)(ctx, t)
			if err != nil {
				return nil, err
			}
			if res.Status != http.StatusOK {
				return nil, fmt.Errorf("got status %d", res.Status)
			}
			if p.link == "" {
				break
			}
			if path, err = chromedp.Evaluate[string](fmt.Sprintf(`document.querySelector(%q).href`, p.link))(ctx, t); err != nil {
				return nil, err
			}
			p.link = ""
		}
		height, err := chromedp.Evaluate[int64](`document.documentElement.scrollHeight`)(ctx, t)
		if err != nil {
			return nil, err
		}
		if err := resize(ctx, t, cmp.Or(p.width, 1280), min(max(height, 500), 1100)); err != nil {
			return nil, err
		}
		return chromedp.CaptureScreenshot()(ctx, t)
	}
}

func resize(ctx context.Context, t *chromedp.Target, width, height int64) error {
	_, err := cdp.Call(ctx, t, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1})
	return err
}

// checkSize returns an error if the pictures exceed the maximum size.
func checkSize(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var total int64
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			return err
		}
		total += info.Size()
	}
	fmt.Printf("%d pictures, %d KB\n", len(files), total>>10)
	if total > largest {
		return fmt.Errorf("the pictures have %d bytes, want at most %d", total, largest)
	}
	return nil
}
