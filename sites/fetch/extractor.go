package fetch

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"strings"
	"time"

	"muster/internal/addressfilter"
	"muster/internal/wrap"
	"muster/sites/extract"
)

// extracting is the input of an extractor.
type extracting struct {
	Site         string `json:"site"`
	Kind         string `json:"kind"`
	URL          string `json:"url"`
	Requested    string `json:"requested_url"`
	Status       int    `json:"status"`
	ContentType  string `json:"content_type"`
	Body         string `json:"body"` // in UTF-8
	Milliseconds int64  `json:"timeout_ms"`
	MaxBytes     int64  `json:"max_bytes"`
}

// maxExtracted limits the JSON that an extractor returns for a page.
const maxExtracted = 8 << 20

// errTooLong means that an extractor returns more than maxExtracted.
var errTooLong = fmt.Errorf("more than %d MiB", maxExtracted>>20)

// Extract returns the JSON that the extractor of the definition makes of a page, as a page with format: json. Every error is an *Error.
func (c *Client) Extract(ctx context.Context, d *extract.Doc) (*extract.Doc, error) {
	e, page := c.def.Extractor, d.Page
	input, err := json.Marshal(extracting{
		c.def.Site, page.Kind, page.URL.String(), page.Requested, page.Status, page.Header.Get("Content-Type"), d.Source(), e.Timeout.Milliseconds(), maxExtracted,
	})
	if err == nil {
		limited, cancel := context.WithTimeout(ctx, e.Timeout)
		defer cancel()
		run, name := c.postPage, e.URL
		if e.Command != "" {
			run, name = c.runCommand, e.Command
		}
		page.Body, err = run(limited, input)
		switch {
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case limited.Err() != nil:
			err = fmt.Errorf("no JSON within extractor.timeout (%s)", e.Timeout)
		case err == nil && !json.Valid(page.Body):
			err = fmt.Errorf("invalid JSON: %.100q", page.Body)
		}
		err = wrap.Err(err, "extractor %s", name)
	}
	if err == nil {
		page.Header, page.Parsed, page.Extracted = maps.Clone(page.Header), nil, true
		page.Header.Set("Content-Type", "application/json; charset=utf-8")
		d, err = extract.Parse(c.def, page)
	}
	if err != nil {
		class := Extractor
		if ctx.Err() != nil {
			class = Canceled
		}
		return nil, &Error{Class: class, URL: page.Requested, Status: page.Status, Via: page.Via, Err: err}
	}
	return d, nil
}

// postPage posts a page to the URL of the extractor.
func (c *Client) postPage(ctx context.Context, input []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.def.Extractor.URL, bytes.NewReader(input))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if key := c.def.Extractor.Key; key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	res, err := c.extractors.Do(req)
	if err != nil {
		return nil, errors.Unwrap(err) // the *url.Error repeats the URL
	}
	defer res.Body.Close()
	out := &limitedBuffer{limit: maxExtracted}
	if _, err := io.Copy(out, res.Body); err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("HTTP status %d: %.300s", res.StatusCode, bytes.TrimSpace(out.buf.Bytes()))
	}
	return out.buf.Bytes(), nil
}

// serviceClient returns the HTTP client for the URL of an extractor or a renderer. It does not follow redirects.
func serviceClient(at string, filter *addressfilter.Filter) *http.Client {
	carrier := DirectTransport(filter.WithURLs(at))
	carrier.ResponseHeaderTimeout = 0
	return &http.Client{Transport: carrier, CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("the service redirects") }}
}

// runCommand runs the command of the extractor with a page as its standard input, without a shell.
func (c *Client) runCommand(ctx context.Context, input []byte) ([]byte, error) {
	args := strings.Fields(c.cfg.Extractors[c.def.Extractor.Command])
	if len(args) == 0 {
		return nil, ErrNoExtractor
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	out, problems := &limitedBuffer{limit: maxExtracted}, &limitedBuffer{limit: 300, cut: true}
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = bytes.NewReader(input), out, problems, time.Second
	err := cmd.Run()
	if out.full {
		err = errTooLong
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, cmp.Or(string(bytes.TrimSpace(problems.buf.Bytes())), "no text on standard error"))
	}
	return out.buf.Bytes(), nil
}

// ErrNoExtractor means that the settings of a process do not name the command of an extractor.
var ErrNoExtractor = errors.New("the setting sites.extractors has no such command; definitions cannot run other commands")

// limitedBuffer is a buffer that fails, or drops the rest, after limit bytes.
type limitedBuffer struct {
	buf       bytes.Buffer // not embedded: its ReadFrom has no limit
	limit     int
	cut, full bool
}

// Write implements io.Writer.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	rest := b.limit - b.buf.Len()
	if len(p) <= rest {
		return b.buf.Write(p)
	}
	b.full = true
	if !b.cut {
		return 0, errTooLong
	}
	b.buf.Write(p[:rest])
	return len(p), nil
}
