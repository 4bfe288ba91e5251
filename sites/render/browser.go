// Package render runs the scripts of pages in Chromium and returns the HTML that they build.
//
// A Browser renders pages in the tabs of one Chromium, which it starts for the first page. NewHandler serves a Renderer over HTTP,
// and a Client uses such a service.
package render

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/storage"
	"github.com/chromedp/cdproto/systeminfo"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/remote"

	"muster/internal/addressfilter"
)

// Config configures a Browser.
type Config struct {
	// Browser is the path of Chromium, or the URL of the debugging port of a running one, such as http://127.0.0.1:9222. Defaults to
	// the Chromium or Chrome on the path.
	Browser string
	Tabs    int                   // maximum number of pages rendered concurrently. Defaults to 4.
	Filter  *addressfilter.Filter // allows non-public addresses without a proxy. Defaults to none. A remote browser ignores it.
	Logger  *slog.Logger          // Defaults to none.
}

const (
	maxPages     = 500         // of one process: Chromium never returns all memory
	maxMemory    = 1 << 30     // of all processes of Chromium, in bytes
	maxHeap      = 512         // of the scripts of a tab, in MiB
	idleTime     = time.Minute // until an unused browser or session is closed
	startTimeout = time.Minute
	closeTimeout = 5 * time.Second
)

// ErrUnavailable means that no page can be rendered on this machine.
var ErrUnavailable = errors.New("no browser for the pages that need JavaScript")

// A Browser is a Chromium that is started on demand. It is replaced after a number of pages, at a memory limit, and when it dies. It
// is safe for concurrent use.
type Browser struct {
	cfg      Config
	maxPages int
	tabs     chan struct{}
	stopping sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	now    *process   // nil: the next page starts one
	closed bool
}

// New returns a Browser. It starts no process.
func New(cfg Config) *Browser {
	cfg.Tabs = cmp.Or(cfg.Tabs, 4)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Browser{cfg: cfg, maxPages: maxPages, tabs: make(chan struct{}, cfg.Tabs)}
}

// Check starts the browser. The error wraps ErrUnavailable and contains the remedy.
func (b *Browser) Check() error {
	p, err := b.take()
	if err != nil {
		return err
	}
	b.leave(p)
	return nil
}

// Close stops the browser, which fails the pages that are being rendered, and waits for them.
func (b *Browser) Close() {
	b.mu.Lock()
	b.closed = true
	b.retire(b.now)
	b.mu.Unlock()
	for range cap(b.tabs) {
		b.tabs <- struct{}{}
	}
	b.stopping.Wait()
	for range cap(b.tabs) {
		<-b.tabs
	}
}

// take returns the running browser, or a new one. The caller must pass it to leave.
func (b *Browser) take() (*process, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, fmt.Errorf("%w: it is shutting down", ErrUnavailable)
	}
	if p := b.now; p != nil && p.ctx.Err() != nil {
		b.retire(p)
	}
	if b.now == nil {
		p, err := b.start()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		b.now = p
	}
	b.now.users++
	b.now.pages++
	return b.now, nil
}

// leave ends a use of a browser, and replaces the browser if it has become too large.
func (b *Browser) leave(p *process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p.users--
	if b.now == p {
		var size int64
		if p.pages%10 == 0 {
			size = p.memory()
		}
		if p.pages >= b.maxPages || size > maxMemory {
			b.cfg.Logger.Info("replacing the browser", "pages", p.pages, "memory", size)
			b.now = nil
		}
	}
	if b.now == p {
		p.idle.Reset(idleTime)
	} else if p.users == 0 {
		b.retire(p)
	}
}

// retire stops a browser, which may be nil. The caller holds mu.
func (b *Browser) retire(p *process) {
	if b.now == p {
		b.now = nil
	}
	if p != nil {
		b.stopping.Go(p.stop)
	}
}

// process is a running Chromium.
type process struct {
	ctx     context.Context // done when the browser has ended
	stop    func()          // idempotent
	browser *chromedp.Browser
	remote  bool
	users   int // pages in progress; guarded by Browser.mu, like pages
	pages   int
	idle    *time.Timer

	mu       sync.Mutex // guards the fields below
	sessions map[string]*session
}

// Find returns the path of a Chromium, or the URL of a remote one.
func Find(name string) (path string, remote bool, err error) {
	if u, err := url.Parse(name); err == nil && u.Host != "" {
		return name, true, nil
	}
	names := []string{name}
	if name == "" {
		names = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge"}
		if runtime.GOOS == "darwin" {
			names = []string{"/Applications/Chromium.app/Contents/MacOS/Chromium", "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"}
		}
	}
	for _, n := range names {
		if path, err = exec.LookPath(n); err == nil {
			return path, false, nil
		}
	}
	return "", false, fmt.Errorf("no Chromium was found as %s; install it (Debian, Ubuntu: apt-get install chromium; macOS: brew install --cask chromium), "+
		"or set sites.browser to its path or to the URL of a running one, such as http://127.0.0.1:9222", strings.Join(names, ", "))
}

// start starts a browser, or connects to a remote one.
func (b *Browser) start() (*process, error) {
	path, isRemote, err := Find(b.cfg.Browser)
	if err != nil {
		return nil, err
	}
	var ctx context.Context
	var free, cancel context.CancelFunc
	var profile string // stays "" for a remote browser
	if isRemote {
		ctx, free = remote.NewAllocator(context.Background(), path)
	} else {
		if profile, err = makeProfile(); err != nil {
			return nil, err
		}
		opts := append(chromedp.DefaultExecAllocatorOptions[:],
			chromedp.ExecPath(path), chromedp.UserDataDir(profile), chromedp.NoInheritEnv, chromedp.DisableGPU,
			chromedp.Flag("disable-popup-blocking", false), chromedp.Flag("disable-component-update", true), chromedp.Flag("mute-audio", true),
			// QUIC and WebRTC would bypass the proxy.
			chromedp.Flag("disable-quic", true), chromedp.Flag("webrtc-ip-handling-policy", "disable_non_proxied_udp"), chromedp.Flag("force-webrtc-ip-handling-policy", "disable_non_proxied_udp"),
			chromedp.Flag("js-flags", "--max-old-space-size="+strconv.Itoa(maxHeap)))
		for _, name := range []string{"HOME", "PATH", "TMPDIR", "XDG_RUNTIME_DIR", "LANG", "FONTCONFIG_PATH", "USERPROFILE", "LOCALAPPDATA", "TEMP"} {
			if value, ok := os.LookupEnv(name); ok { // the others may be secrets
				opts = append(opts, chromedp.Env(name+"="+value))
			}
		}
		ctx, free = chromedp.NewExecAllocator(context.Background(), opts...)
	}
	ctx, cancel = chromedp.NewContext(ctx, chromedp.WithLogf(func(format string, args ...any) {
		b.cfg.Logger.Debug("browser", "message", fmt.Sprintf(format, args...))
	}))
	p := &process{ctx: ctx, remote: isRemote, sessions: map[string]*session{}}
	p.stop = sync.OnceFunc(func() {
		if p.idle != nil {
			p.idle.Stop()
		}
		if !isRemote { // a browser that is killed leaves files in the directory of temporary files
			ctx, cancel := context.WithTimeout(ctx, closeTimeout)
			_ = chromedp.Cancel(ctx) // it is killed below
			cancel()
		}
		cancel()
		free()
		if profile != "" {
			_ = os.RemoveAll(profile) // a later start removes the rest
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, s := range p.sessions {
			s.outlet.close()
		}
	})
	defer time.AfterFunc(startTimeout, cancel).Stop()
	err = chromedp.ListenBrowser(ctx, p.closePopup)
	if err == nil {
		p.browser = chromedp.FromContext(ctx).Browser
		_, err = cdp.Call(ctx, p.browser, target.SetDiscoverTargets, target.SetDiscoverTargetsParams{Discover: true})
	}
	if err != nil {
		p.stop()
		if isRemote {
			return nil, fmt.Errorf("connect to the browser: %w; start it with --remote-debugging-port", err)
		}
		return nil, fmt.Errorf("%s does not start: %w", filepath.Base(path), err)
	}
	p.idle = time.AfterFunc(idleTime, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if p.users == 0 {
			b.retire(p)
		}
	})
	return p, nil
}

// makeProfile makes the directory of a browser, and removes those that killed processes of this machine have left.
func makeProfile() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", err
	}
	prefix := "muster-chromium-" + host + "-"
	all, err := os.ReadDir(os.TempDir())
	if err != nil {
		return "", err
	}
	for _, e := range all {
		owner, _, _ := strings.Cut(strings.TrimPrefix(e.Name(), prefix), "-")
		pid, err := strconv.Atoi(owner)
		if err != nil || !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		if p, err := os.FindProcess(pid); err == nil && errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone) {
			_ = os.RemoveAll(filepath.Join(os.TempDir(), e.Name())) // may be another user's
		}
	}
	return os.MkdirTemp("", fmt.Sprint(prefix, os.Getpid(), "-"))
}

// closePopup closes the windows that pages open.
func (p *process) closePopup(event any) {
	if e, ok := event.(*target.EventTargetCreated); ok && e.TargetInfo.Type == "page" && e.TargetInfo.OpenerID != "" {
		go func() {
			_, _ = cdp.Call(p.ctx, p.browser, target.CloseTarget, target.CloseTargetParams{TargetID: e.TargetInfo.TargetID}) // may be closed
		}()
	}
}

// memory returns the private memory of the browser in bytes, or 0 if it cannot be measured, which needs Linux.
func (p *process) memory() (bytes int64) {
	if p.remote || runtime.GOOS != "linux" {
		return 0
	}
	ctx, cancel := context.WithTimeout(p.ctx, 5*time.Second)
	defer cancel()
	info, err := cdp.Call(ctx, p.browser, systeminfo.GetProcessInfo, cdp.Empty{})
	if err != nil {
		return 0 // the browser has ended
	}
	for _, one := range info.ProcessInfo {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", one.ID)) // it may have ended
		if _, rest, ok := strings.Cut(string(status), "RssAnon:"); ok {
			var kib int64
			_, _ = fmt.Sscan(rest, &kib)
			bytes += kib << 10
		}
	}
	return bytes
}

// session is a browser context: the cookies, the cache and the proxy of one visitor.
type session struct {
	id     cdp.BrowserContextID
	login  *url.Userinfo // for the proxy
	outlet *outlet       // nil with a proxy
	users  int
	used   time.Time
}

// open returns the session of a request. The caller must pass it to release.
func (p *process) open(ctx context.Context, r *Request) (*session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := r.Session + " " + r.Proxy
	s := p.sessions[key]
	if s == nil || r.Session == "" {
		var err error
		if s, err = p.newSession(ctx, r); err != nil {
			return nil, fmt.Errorf("open a session: %w", err)
		}
		if r.Session == "" {
			key = string(s.id)
		}
		p.sessions[key] = s
	}
	s.users++
	return s, nil
}

func (p *process) newSession(ctx context.Context, r *Request) (_ *session, err error) {
	s := &session{}
	yes := true
	params := target.CreateBrowserContextParams{DisposeOnDetach: &yes}
	if r.Proxy != "" {
		u, err := url.Parse(r.Proxy)
		if err != nil || u.Host == "" {
			return nil, errors.New("invalid URL of the proxy")
		}
		s.login, params.ProxyServer = u.User, u.Scheme+"://"+u.Host
	} else if !p.remote {
		if s.outlet, err = openOutlet(r.Filter.WithURLs(r.URL)); err != nil {
			return nil, err
		}
		defer func() {
			if err != nil {
				s.outlet.close()
			}
		}()
		params.ProxyServer = "http://" + s.outlet.address
	}
	if params.ProxyServer != "" {
		params.ProxyBypassList = "<-loopback>" // loopback through the proxy, too
	}
	made, err := cdp.Call(ctx, p.browser, target.CreateBrowserContext, params)
	if err != nil {
		return nil, err
	}
	s.id = made.BrowserContextID
	_, err = cdp.Call(ctx, p.browser, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{Behavior: browser.SetDownloadBehaviorBehaviorDeny, BrowserContextID: s.id})
	if err != nil {
		return nil, err
	}
	for pair := range strings.SplitSeq(r.Headers["Cookie"], "; ") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			one := []*network.CookieParam{{Name: name, Value: value, URL: r.URL}}
			_, _ = cdp.Call(ctx, p.browser, storage.SetCookies, storage.SetCookiesParams{Cookies: one, BrowserContextID: s.id}) // Chromium sends only valid ones
		}
	}
	return s, ctx.Err()
}

// release ends a use of a session, and closes sessions that nobody will use again.
func (p *process) release(r *Request, s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.users--
	s.used = time.Now()
	for key, other := range p.sessions {
		if other.users == 0 && (other == s && r.Session == "" || time.Since(other.used) > idleTime) {
			p.dispose(key)
		}
	}
}

// dispose closes a session with its tabs. The caller holds mu.
func (p *process) dispose(key string) {
	s := p.sessions[key]
	delete(p.sessions, key)
	s.outlet.close()
	ctx, cancel := context.WithTimeout(p.ctx, 5*time.Second)
	defer cancel()
	_, _ = cdp.Call(ctx, p.browser, target.DisposeBrowserContext, target.DisposeBrowserContextParams{BrowserContextID: s.id}) // it ends with the browser at the latest
}
