package client

import (
	"io"
	"net/http"
	"sync"
)

// Handler returns a transport that calls h in this process, without a network. Responses are streamed. The goroutine
// of a request ends when h returns, which h does when the context is done or the body of the response is closed.
func Handler(h http.Handler) http.RoundTripper { return handlerTransport{h} }

type handlerTransport struct{ handler http.Handler }

func (t handlerTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	body, out := io.Pipe()
	w := &pipedResponse{header: http.Header{}, out: out, begun: make(chan struct{})}
	req = req.Clone(req.Context())
	req.RequestURI = req.URL.RequestURI()
	req.RemoteAddr = "127.0.0.1:0"
	if req.Body == nil {
		req.Body = http.NoBody
	}
	go func() {
		defer out.Close()
		defer w.WriteHeader(http.StatusOK)
		t.handler.ServeHTTP(w, req)
	}()
	select {
	case <-w.begun:
	case <-req.Context().Done():
		_ = body.Close() // writes of the handler fail from now on
		return nil, req.Context().Err()
	}
	return &http.Response{
		Status: http.StatusText(w.status), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, Body: body, ContentLength: -1, Request: req,
	}, nil
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
