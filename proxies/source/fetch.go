package source

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/goccy/go-yaml"

	"muster/internal/addressfilter"
	"muster/internal/contentencoding"
	"muster/internal/secret"
	"muster/internal/wrap"
)

// Source configures a list of proxies.
type Source struct {
	// Name identifies the source in reports. Defaults to URL without credentials.
	Name string `json:"name,omitempty" yaml:"name"`
	// URL is http://, https://, file://, a path, or "-" for standard input. It may contain references to secrets; see
	// package secret.
	URL string `json:"url" yaml:"url"`
	// Gateway replaces URL by the address of a paid gateway, such as http://USER:PASSWORD@HOST:PORT: a proxy with
	// many exits. It may contain references to secrets, {country} and {session}. It yields a candidate for each of
	// Countries and each session. It is not sent to other processes, which need the same setting. Requires Name.
	Gateway   string   `json:"-" yaml:"gateway"`
	Countries []string `json:"-" yaml:"countries"` // in the spelling of the provider
	Sessions  int      `json:"-" yaml:"sessions"`  // number of sessions, counted from 1
	// Protocol is the label for entries without one. Defaults to none.
	Protocol string `json:"protocol,omitempty" yaml:"protocol"`
	// Headers are request headers. The values may contain references to secrets. Defaults to none.
	Headers map[string]string `json:"headers,omitempty" yaml:"headers"`
	// Auth is user:password for HTTP Basic. It may contain references to secrets. Defaults to none.
	Auth string `json:"auth,omitempty" yaml:"auth"`
	// Max is the maximum number of candidates. Defaults to 100,000.
	Max int `json:"max,omitempty" yaml:"max"`
	// Timeout limits the fetch. Defaults to 30 s.
	Timeout time.Duration `json:"timeout,omitempty" yaml:"timeout"`
	// AllowLocal accepts loopback and private addresses. Defaults to false.
	AllowLocal bool `json:"allow_local,omitempty" yaml:"-"`
}

// Label returns the name for reports and logs, without credentials.
func (s Source) Label() string {
	if s.Name != "" {
		return s.Name
	}
	if u, err := url.Parse(s.URL); err == nil && u.Scheme != "" {
		return u.Scheme + "://" + u.Host + u.Path // the query may contain a key
	}
	return s.URL
}

// A List is the result of fetching a source.
type List struct {
	Source string `json:"source"` // the label of the source
	Parsed
}

// ErrEmpty is wrapped by errors for a source without usable endpoints.
var ErrEmpty = errors.New("no proxies found")

// A Fetcher fetches lists. The zero value is usable.
type Fetcher struct {
	// Filter selects the non-public addresses to which the hosts of URLs may resolve, including redirects. It does
	// not apply to a literal address in a source. Defaults to none.
	Filter *addressfilter.Filter
	// Client fetches URLs. The default applies Filter and follows up to 5 redirects, to http and https only.
	Client *http.Client
	// Stdin is the input for "-". Defaults to os.Stdin.
	Stdin io.Reader
	// MaxBytes is the maximum size of a list after decompression; a larger list is an error. Defaults to
	// DefaultMaxBytes.
	MaxBytes int64
	// Getenv looks up the variables of references. Defaults to os.LookupEnv.
	Getenv func(string) (string, bool)
}

// DefaultMaxBytes is the default of Fetcher.MaxBytes.
const DefaultMaxBytes = 32 << 20

// client returns the client for the URL of a source.
func (f *Fetcher) client(where string) *http.Client {
	if f.Client != nil {
		return f.Client
	}
	transport := f.Filter.WithURLs(where).Transport()
	transport.DisableKeepAlives = true // a list is fetched once
	return &http.Client{Transport: contentencoding.Transport(transport), CheckRedirect: checkRedirect}
}

func checkRedirect(request *http.Request, via []*http.Request) error {
	if len(via) >= 5 {
		return errors.New("more than 5 redirects")
	}
	if request.URL.Host != via[0].URL.Host || request.URL.Scheme != via[0].URL.Scheme { // secrets of the source must not reach other hosts
		request.Header = http.Header{"User-Agent": request.Header["User-Agent"], "Accept": request.Header["Accept"]}
	}
	return nil
}

// Fetch fetches a complete list. A list that is truncated, larger than MaxBytes or without proxies, such as a web
// page, yields an error and no candidates. Errors do not contain credentials.
func (f *Fetcher) Fetch(ctx context.Context, s Source) (List, error) {
	label := s.Label()
	list, err := f.fetch(ctx, s)
	list.Source = label
	return list, wrap.Err(err, "source %s", label)
}

func (f *Fetcher) fetch(ctx context.Context, s Source) (List, error) {
	if s.Protocol != "" && !slices.Contains(Protocols, s.Protocol) {
		return List{}, fmt.Errorf("unknown protocol %q; use one of %s", s.Protocol, strings.Join(Protocols, ", "))
	}
	if s.Gateway != "" {
		parsed, err := f.gateway(s)
		return List{Parsed: parsed}, err
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(s.Timeout, 30*time.Second))
	defer cancel()
	body, err := f.open(ctx, s)
	if err != nil {
		return List{}, err
	}
	stop := context.AfterFunc(ctx, func() { body.Close() }) // applies the timeout to a silent pipe too
	defer stop()
	defer body.Close()

	limit := cmp.Or(f.MaxBytes, DefaultMaxBytes)
	parsed, err := Parse(body, Options{Protocol: s.Protocol, AllowLocal: s.AllowLocal, Max: s.Max, MaxBytes: limit, Name: s.Label()})
	switch {
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return List{}, fmt.Errorf("list was not received within %s", cmp.Or(s.Timeout, 30*time.Second))
	case errors.Is(err, contentencoding.ErrTooLarge):
		return List{}, fmt.Errorf("list is larger than %s; increase proxies.max_list_mb", humanize.IBytes(uint64(limit)))
	case err != nil:
		return List{}, fmt.Errorf("list is truncated after %d bytes: %w", parsed.Bytes, err)
	}
	list := List{Parsed: parsed}
	switch {
	case list.Bytes == 0:
		return list, fmt.Errorf("list is empty: %w", ErrEmpty)
	case len(list.Candidates) == 0 && list.HTML:
		return list, fmt.Errorf("a web page instead of a list: %w", ErrEmpty)
	case len(list.Candidates) == 0:
		remedy := "use lines with protocol://host:port, JSON or CSV"
		if list.Rejects[Private] > 0 {
			remedy = "private addresses need proxies.allow_local"
		}
		return list, fmt.Errorf("%d bytes, rejected %s; %s: %w", list.Bytes, cmp.Or(list.Describe("line"), "nothing"), remedy, ErrEmpty)
	}
	return list, nil
}

// Local reports whether a source is a file or standard input, as far as it is known without the variables.
func (f *Fetcher) Local(s Source) bool {
	where, err := f.expand(s.URL)
	if err != nil || where == "" {
		return false
	}
	scheme, _, remote := strings.Cut(where, "://")
	return !remote || strings.EqualFold(scheme, "file")
}

// open opens a source for reading.
func (f *Fetcher) open(ctx context.Context, s Source) (io.ReadCloser, error) {
	where, err := f.expand(s.URL)
	if err != nil {
		return nil, err
	}
	switch {
	case where == "":
		return nil, errors.New("missing URL")
	case where == "-":
		in := f.Stdin
		if in == nil {
			in = os.Stdin
		}
		return io.NopCloser(in), nil
	case !strings.Contains(where, "://"):
		return openFile(where)
	}
	u, err := url.Parse(where)
	if err != nil {
		return nil, errors.New("invalid URL") // the cause contains credentials
	}
	switch u.Scheme {
	case "file":
		return openFile(filepath.FromSlash(u.Path))
	case "http", "https":
	default:
		return nil, fmt.Errorf("unsupported URL scheme %q; use http, https or file", u.Scheme)
	}

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, where, nil)
	if err != nil {
		return nil, errors.New("invalid URL")
	}
	request.Header.Set("User-Agent", "Muster")
	request.Header.Set("Accept", "text/plain, application/json;q=0.9, text/csv;q=0.9, */*;q=0.5")
	for name, value := range s.Headers {
		if value, err = f.expand(value); err != nil {
			return nil, err
		}
		request.Header.Set(name, value)
	}
	if s.Auth != "" {
		auth, err := f.expand(s.Auth)
		if err != nil {
			return nil, err
		}
		user, password, _ := strings.Cut(auth, ":")
		request.SetBasicAuth(user, password)
	}
	response, err := f.client(where).Do(request)
	if err != nil {
		var failed *url.Error
		if errors.As(err, &failed) {
			err = failed.Err // the URL may contain a key
		}
		return nil, fmt.Errorf("fetch list: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, fmt.Errorf("fetch list: status %s", response.Status)
	}
	return response.Body, nil
}

func openFile(path string) (io.ReadCloser, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err == nil && info.IsDir() {
		file.Close()
		return nil, fmt.Errorf("%s is a directory", path)
	}
	return file, nil
}

// expand replaces references by secrets.
func (f *Fetcher) expand(text string) (string, error) {
	getenv := f.Getenv
	if getenv == nil {
		getenv = os.LookupEnv
	}
	return secret.Expand(text, getenv)
}

// Describe returns the rejected entries by reason, with the numbers of the first lines. unit is the name of a line.
func (p Parsed) Describe(unit string) string {
	var parts []string
	for reject, n := range p.Rejects {
		part := fmt.Sprintf("%s %d", reject, n)
		if lines := p.Lines[reject]; len(lines) > 0 {
			numbers := strings.Fields(strings.Trim(fmt.Sprint(lines), "[]"))
			if len(numbers) == maxLines {
				numbers[maxLines-1] = "…"
			}
			plural := ""
			if len(numbers) > 1 {
				plural = "s"
			}
			part += fmt.Sprintf(" (%s%s %s)", unit, plural, strings.Join(numbers, ", "))
		}
		parts = append(parts, part)
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// Merge merges lists: each endpoint occurs once, with the names of all lists that contain it. Entries with and
// without a label for the same endpoint are merged into one with the label.
func Merge(lists []List) []Candidate {
	labelled := map[string]Candidate{} // an entry with a label, by endpoint
	for _, list := range lists {
		for _, c := range list.Candidates {
			if c.Protocol != "" {
				labelled[c.Endpoint()] = c
			}
		}
	}
	var out []Candidate
	at := map[string]int{}
	for _, list := range lists {
		for _, c := range list.Candidates {
			sources := c.Sources
			if other, ok := labelled[c.Endpoint()]; ok && c.Protocol == "" {
				c = other
			}
			i, ok := at[c.Key()]
			if !ok {
				i = len(out)
				at[c.Key()] = i
				c.Sources = nil
				out = append(out, c)
			}
			out[i].Sources = addSources(out[i].Sources, sources)
		}
	}
	return out
}

func addSources(to, more []string) []string {
	for _, s := range more {
		if !slices.Contains(to, s) {
			to = append(to, s)
		}
	}
	return to
}

//go:embed public.yaml
var publicYAML []byte

// publicTimeout is short so that a machine without a network fails quickly.
const publicTimeout = 15 * time.Second

// Public returns well-known public lists. They are fetched only on request.
func Public() []Source {
	var list []Source
	if err := yaml.UnmarshalWithOptions(publicYAML, &list, yaml.Strict()); err != nil {
		panic("embedded list of public sources: " + err.Error())
	}
	for i := range list {
		list[i].Timeout = publicTimeout
	}
	return list
}
