// Package client calls the HTTP API of an orchestrator. Requests and responses
// have the types of the server, so that both always agree.
//
//	c, err := client.New(client.Config{URL: "http://127.0.0.1:8000", Key: os.Getenv("MUSTER_API_KEY")})
//	keys, err := client.All(ctx, c, client.ListKeys, client.None{}, 0)
//
// An error of the server is a *Problem, whose Code programs can compare:
//
//	if p, ok := errors.AsType[*client.Problem](err); ok && p.Code == "key_not_found" { … }
package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"muster/internal/httpproblem"
	"muster/tasks/api"
)

// maxResponse is the largest response that is read as a whole, in bytes.
const maxResponse = 256 << 20

// Config configures a Client.
type Config struct {
	// URL of the server without a path, as in http://127.0.0.1:8000. Required.
	URL string
	// Key is an API key or a JSON Web Token. Defaults to none. It is sent to the host
	// of URL only.
	Key string
	// Transport sends the requests. Defaults to http.DefaultTransport; see Handler for
	// a server in the same process.
	Transport http.RoundTripper
}

// Client calls an orchestrator. It is safe for concurrent use. Calls end with
// their context; a Client sets no timeout.
type Client struct {
	base *url.URL
	key  string
	http *http.Client
}

// New returns a client. It does no I/O.
func New(cfg Config) (*Client, error) {
	u, err := url.Parse(cfg.URL)
	switch {
	case err != nil:
		return nil, errors.New("server: write a URL as in http://127.0.0.1:8000")
	case u.User != nil:
		return nil, errors.New("server: the URL must not contain a password; set MUSTER_API_KEY")
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return nil, fmt.Errorf("server %q: write a URL as in http://127.0.0.1:8000", cfg.URL)
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("server %s: write the URL without a path, as in %s://%s", u, u.Scheme, u.Host)
	}
	u.Path = ""
	return &Client{base: u, key: cfg.Key, http: &http.Client{
		Transport: cfg.Transport,
		// The API has no redirects. One to another host would receive the request.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// URL returns the URL of the server.
func (c *Client) URL() string { return c.base.String() }

// Page is a page of a list.
type Page[T any] = api.Page[T]

// decode decodes a response to out, if it is not nil, and closes it.
func (c *Client) decode(res *http.Response, out any) error {
	defer res.Body.Close()
	if out == nil {
		return nil
	}
	path := res.Request.Method + " " + res.Request.URL.Path
	data, err := io.ReadAll(io.LimitReader(res.Body, maxResponse+1))
	switch {
	case err != nil:
		return fmt.Errorf("read the response of %s to %s: %w", c.base, path, err)
	case len(data) > maxResponse:
		return fmt.Errorf("the response of %s to %s has more than %d bytes", c.base, path, maxResponse)
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("decode the response of %s to %s: %w", c.base, path, err)
	}
	return nil
}

// jsonType is the media type of most requests and responses.
const jsonType = "application/json"

// send sends a request with further headers and a body of a media type; a nil body means none. The error is a *Problem if the
// server responds with one. The response has the media type of the header Accept, which defaults to JSON. The caller
// closes its body.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, header http.Header, media string, body io.Reader) (*http.Response, error) {
	u := c.base.String() + path
	if len(query) > 0 {
		u += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, u, body)
	if err != nil {
		return nil, fmt.Errorf("request %s %s: %w", method, path, err)
	}
	if media != "" {
		req.Header.Set("Content-Type", media)
	}
	maps.Copy(req.Header, header)
	accept := cmp.Or(header.Get("Accept"), jsonType)
	req.Header.Set("Accept", accept+", "+httpproblem.MediaType)
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	res, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("call the orchestrator: %w", err)
	}
	if err := c.check(res, accept); err != nil {
		_ = res.Body.Close()
		return nil, err
	}
	return res, nil
}

// check returns the error of a response that should have a media type.
func (c *Client) check(res *http.Response, accept string) error {
	media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")) // "" if it is invalid
	switch {
	case media == httpproblem.MediaType:
		var p Problem
		if err := json.NewDecoder(io.LimitReader(res.Body, 1<<20)).Decode(&p); err != nil {
			return fmt.Errorf("decode the error of %s: %w", c.base, err)
		}
		p.RequestID = res.Header.Get("X-Request-Id")
		return &p
	case res.StatusCode >= 300 && res.StatusCode < 400:
		return fmt.Errorf("%s redirects to %s; use the URL of the orchestrator itself", c.base, res.Header.Get("Location"))
	case res.StatusCode >= 400 || media != accept && res.StatusCode != http.StatusNoContent:
		return fmt.Errorf("%s does not respond like an orchestrator: status %d, content type %q; check the URL", c.base, res.StatusCode, media)
	}
	return nil
}

// Problem is the response to a request that failed, as defined by RFC 9457, with a code.
type Problem = httpproblem.Problem

// ProblemField is an invalid part of a request.
type ProblemField = httpproblem.Field

// Handler returns a transport that calls h in this process, without a network. Responses are streamed. The goroutine
// of a request ends when h returns, which h does when the context is done or the body of the response is closed. Close of
// the body waits for that.
func Handler(h http.Handler) http.RoundTripper { return handlerTransport{h} }

type handlerTransport struct{ handler http.Handler }

func (t handlerTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	body, out := io.Pipe()
	w := &pipedResponse{header: http.Header{}, out: out, begun: make(chan struct{})}
	caller := req.Context()
	ctx, cancel := context.WithCancel(caller)
	req = req.Clone(ctx)
	req.RequestURI = req.URL.RequestURI()
	req.RemoteAddr = "127.0.0.1:0"
	if req.Body == nil {
		req.Body = http.NoBody
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer cancel()
		defer out.Close()
		defer w.WriteHeader(http.StatusOK)
		t.handler.ServeHTTP(w, req)
	}()
	select {
	case <-w.begun:
	case <-caller.Done():
		cancel()
		_ = body.Close() // writes of the handler fail from now on
		return nil, caller.Err()
	}
	return &http.Response{
		Status: http.StatusText(w.status), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, Body: pipedBody{body, cancel, ended}, ContentLength: -1, Request: req,
	}, nil
}

// pipedBody is the body of a response. Its handler may do more than it writes, such as an entry in the audit log.
type pipedBody struct {
	*io.PipeReader
	cancel context.CancelFunc
	ended  chan struct{} // closed when the handler has returned
}

func (b pipedBody) Close() error {
	err := b.PipeReader.Close()
	b.cancel()
	<-b.ended
	return err
}

// pipedResponse is a response whose body is read while the handler writes it.
type pipedResponse struct {
	header http.Header
	out    *io.PipeWriter
	once   sync.Once
	begun  chan struct{} // closed when status and sent are set
	status int
	sent   http.Header
}

func (w *pipedResponse) Header() http.Header { return w.header }

// Flush does nothing: writes are not buffered.
func (w *pipedResponse) Flush() {}

func (w *pipedResponse) WriteHeader(status int) {
	w.once.Do(func() {
		w.status, w.sent = status, w.header.Clone()
		close(w.begun)
	})
}

func (w *pipedResponse) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.out.Write(p)
}

// Object is a JSON object as it was sent.
type Object json.RawMessage

// MarshalJSON returns the object.
func (o Object) MarshalJSON() ([]byte, error) { return json.RawMessage(o).MarshalJSON() }

// UnmarshalJSON stores a copy of data, or nil for null.
func (o *Object) UnmarshalJSON(data []byte) error {
	*o = nil
	if string(data) != "null" {
		*o = bytes.Clone(data)
	}
	return nil
}
