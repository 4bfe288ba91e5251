package probe

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"muster/proxies/tunnel"
)

// maxReply bounds everything that is read of one answer: head, body, and what a chunked body adds.
const maxReply = 128 << 10

// knownHeaders are sent with each request, always the same, so that a change is the proxy's.
const knownHeaders = "User-Agent: Mozilla/5.0 (compatible; Muster)\r\nAccept: */*\r\nAccept-Encoding: identity\r\nConnection: close\r\n"

type exchangeRequest struct {
	target    string // what stands in the request line
	host      string
	proxyAuth string
	wait      time.Duration // for the first byte, and again for the rest
	most      int64         // bytes read of the answer. Defaults to maxReply
}

type reply struct {
	status    int
	header    http.Header
	body      []byte
	truncated bool // the body was longer than we read
	firstByte time.Duration
}

// exchange sends one request and reads its answer. Whatever the other side does, it ends by ctx and request.wait and
// reads no more than request.most.
func exchange(ctx context.Context, conn net.Conn, request exchangeRequest) (*reply, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	begin := time.Now()
	wait := func() {
		if ctx.Err() == nil {
			deadline := time.Now().Add(request.wait)
			if until, ok := ctx.Deadline(); ok && until.Before(deadline) {
				deadline = until
			}
			_ = conn.SetDeadline(deadline)
		}
	}

	wait()
	var head strings.Builder
	fmt.Fprintf(&head, "GET %s HTTP/1.1\r\nHost: %s\r\n%s", request.target, request.host, knownHeaders)
	if request.proxyAuth != "" {
		fmt.Fprintf(&head, "Proxy-Authorization: %s\r\n", request.proxyAuth)
	}
	head.WriteString("\r\n")
	if _, err := io.WriteString(conn, head.String()); err != nil {
		return nil, err
	}

	most := cmp.Or(request.most, maxReply)
	limited := &io.LimitedReader{R: conn, N: most}
	reader := bufio.NewReaderSize(limited, 2<<10)
	if _, err := reader.Peek(1); err != nil {
		return nil, err
	}
	out := &reply{firstByte: time.Since(begin)}
	wait()
	for range 5 { // 1xx answers may come before the answer
		response, err := http.ReadResponse(reader, &http.Request{Method: http.MethodGet})
		if err != nil {
			if limited.N <= 0 {
				return nil, &tunnel.Error{Reason: tunnel.Garbage, Detail: "endless headers"}
			}
			return nil, err
		}
		if response.StatusCode/100 == 1 && response.StatusCode != http.StatusSwitchingProtocols {
			continue
		}
		out.status, out.header = response.StatusCode, response.Header
		out.body, err = io.ReadAll(io.LimitReader(response.Body, most))
		out.truncated = limited.N <= 0
		if err != nil && !out.truncated && (out.status/100 == 2 || out.status == http.StatusNotFound) { // what the judge answers
			return nil, err
		}
		return out, nil
	}
	return nil, &tunnel.Error{Reason: tunnel.Garbage, Detail: "1xx answers without end"}
}

// verifyEcho takes a reply for the judge's only when it carries the nonce and, whole, the judge's signature.
func (p *Prober) verifyEcho(r *reply, nonce string) (*Echo, error) {
	var sealed envelope
	var echo Echo
	if r.truncated || json.Unmarshal(r.body, &sealed) != nil || json.Unmarshal(sealed.Echo, &echo) != nil || sealed.MAC == "" {
		if bytes.Contains(r.body, []byte(`"nonce":"`+nonce+`"`)) {
			return nil, &tunnel.Error{Reason: Injects, Detail: "the judge's answer came with something else around it"}
		}
		return nil, &tunnel.Error{Reason: NotProxy, Detail: fmt.Sprintf("answered %d with a page of its own", r.status)}
	}
	if !hmac.Equal([]byte(sealed.MAC), []byte(sign(p.cfg.Key, sealed.Echo))) {
		if echo.Nonce == nonce {
			return nil, &tunnel.Error{Reason: Injects, Detail: "the judge's answer was changed"}
		}
		return nil, &tunnel.Error{Reason: Forged, Detail: "the judge's signature is wrong"}
	}
	if echo.Nonce != nonce {
		return nil, &tunnel.Error{Reason: Forged, Err: errOtherRequest}
	}
	if !echo.Peer.IsValid() {
		return nil, &tunnel.Error{Reason: Forged, Detail: "no peer address"}
	}
	return &echo, nil
}

var errAltered = errors.New("the page is not the one that the judge sends")

// errOtherRequest is in the error for an answer of the judge, whole and signed, that belongs to another request.
var errOtherRequest = errors.New("the answer to another request")

// wrongBody is an answer with a good status whose body is not the judge's to this request.
type wrongBody struct {
	error
	tampering string // what that is, if it is a proxy that sent it
}

func (e *wrongBody) Unwrap() error { return e.error }

// proxyHeaders are what a proxy may add to an answer or change in it, openly.
var proxyHeaders = []string{
	"Via", "Age", "Date", "Connection", "Proxy-Connection", "Keep-Alive", "Transfer-Encoding", "Content-Length", "Trailer",
	"X-Cache", "X-Cache-Lookup", "Cache-Status", "Proxy-Status", "Warning",
}

// changedHeaders are the names of the headers of a page of the judge that were added, changed or dropped.
func changedHeaders(header http.Header) []string {
	want := http.Header{"Cache-Control": {cacheControl}, "Content-Type": {pageType}}
	var names []string
	for name, values := range header {
		if !slices.Equal(values, want[name]) && !slices.Contains(proxyHeaders, name) {
			names = append(names, name)
		}
	}
	for name := range want {
		if len(header[name]) == 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// verifyPage returns the peer that the judge wrote into the page, when the page is exactly the judge's.
func (p *Prober) verifyPage(r *reply, nonce string) (netip.Addr, error) {
	_, rest, _ := bytes.Cut(r.body, []byte(`content="`+nonce+" "))
	text, _, _ := bytes.Cut(rest, []byte(`"`))
	peer, err := netip.ParseAddr(string(text))
	if err != nil || r.truncated || string(r.body) != page(p.cfg.Key, nonce, peer) {
		return netip.Addr{}, errAltered
	}
	return peer, nil
}
