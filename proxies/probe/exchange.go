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
	"strings"
	"time"

	"muster/proxies/tunnel"
)

// maxReply limits the bytes read of one response: head, body and chunked framing.
const maxReply = 128 << 10

// knownHeaders are sent with every request. They are constant, so that a change is attributable to the proxy.
const knownHeaders = "User-Agent: Mozilla/5.0 (compatible; Muster)\r\nAccept: */*\r\nAccept-Encoding: identity\r\nConnection: close\r\n"

type exchangeRequest struct {
	target    string // the request target
	host      string
	proxyAuth string
	wait      time.Duration // for the first byte, and again for the remainder
	maxBytes  int64         // limit on the bytes of the response. Defaults to maxReply
}

type reply struct {
	status    int
	header    http.Header
	body      []byte
	truncated bool // the body exceeded the limit
	firstByte time.Duration
}

// exchange sends one request and reads its response. It returns within the limits of ctx and request.wait, and reads
// at most request.maxBytes bytes, whatever the peer does.
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

	maxBytes := cmp.Or(request.maxBytes, maxReply)
	limited := &io.LimitedReader{R: conn, N: maxBytes}
	reader := bufio.NewReaderSize(limited, 2<<10)
	if _, err := reader.Peek(1); err != nil {
		return nil, err
	}
	out := &reply{firstByte: time.Since(begin)}
	wait()
	for range 5 { // 1xx responses may precede the final one
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
		out.body, err = io.ReadAll(io.LimitReader(response.Body, maxBytes))
		out.truncated = limited.N <= 0
		if err != nil && !out.truncated && (out.status/100 == 2 || out.status == http.StatusNotFound) { // a status that the judge sends
			return nil, err
		}
		return out, nil
	}
	return nil, &tunnel.Error{Reason: tunnel.Garbage, Detail: "too many 1xx responses"}
}

// verifyEcho returns the echo in r if it carries the nonce and a valid signature of the judge.
func (p *Prober) verifyEcho(r *reply, nonce string) (*Echo, error) {
	var sealed envelope
	var echo Echo
	if r.truncated || json.Unmarshal(r.body, &sealed) != nil || json.Unmarshal(sealed.Echo, &echo) != nil || sealed.MAC == "" {
		if bytes.Contains(r.body, []byte(`"nonce":"`+nonce+`"`)) {
			return nil, &tunnel.Error{Reason: Injects, Detail: "content added around the judge's response"}
		}
		return nil, &tunnel.Error{Reason: NotProxy, Detail: fmt.Sprintf("status %d with a foreign page", r.status)}
	}
	if !hmac.Equal([]byte(sealed.MAC), []byte(sign(p.cfg.Key, sealed.Echo))) {
		if echo.Nonce == nonce {
			return nil, &tunnel.Error{Reason: Injects, Detail: "the judge's response was modified"}
		}
		return nil, &tunnel.Error{Reason: Forged, Detail: "invalid signature of the judge"}
	}
	if echo.Nonce != nonce {
		return nil, &tunnel.Error{Reason: Forged, Err: errOtherRequest}
	}
	if !echo.Peer.IsValid() {
		return nil, &tunnel.Error{Reason: Forged, Detail: "no peer address"}
	}
	return &echo, nil
}

var errAltered = errors.New("the page differs from the judge's page")

// errOtherRequest is wrapped by errors about a correctly signed response of the judge that belongs to another
// request.
var errOtherRequest = errors.New("response belongs to another request")

// wrongBody is the error for a successful status whose body is not the judge's response to this request.
type wrongBody struct {
	error
	tampering string // the kind of tampering, if a proxy sent it
}

func (e *wrongBody) Unwrap() error { return e.error }

// verifyPage returns the peer address in the page if the page is exactly the judge's.
func (p *Prober) verifyPage(r *reply, nonce string) (netip.Addr, error) {
	_, rest, _ := bytes.Cut(r.body, []byte(`content="`+nonce+" "))
	text, _, _ := bytes.Cut(rest, []byte(`"`))
	peer, err := netip.ParseAddr(string(text))
	if err != nil || r.truncated || string(r.body) != page(p.cfg.Key, nonce, peer) {
		return netip.Addr{}, errAltered
	}
	return peer, nil
}
