package tunnel

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// maxConnectResponse limits the size of the head of the proxy's response to CONNECT.
const maxConnectResponse = 16 << 10

// BasicAuth returns the Proxy-Authorization header for the proxy, or "" if it has no credentials.
func (d *Dialer) BasicAuth() string {
	user, password, ok := d.credentials()
	if !ok {
		return ""
	}
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

func (d *Dialer) connect(conn *Conn, addr string) error {
	var request strings.Builder
	fmt.Fprintf(&request, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n", addr, addr)
	if auth := d.BasicAuth(); auth != "" {
		fmt.Fprintf(&request, "Proxy-Authorization: %s\r\n", auth)
	}
	request.WriteString("\r\n")
	conn.targetSent = true
	if _, err := io.WriteString(conn.Conn, request.String()); err != nil {
		return err
	}

	// The limit applies to the head only; the subsequent bytes come from the target.
	limited := &io.LimitedReader{R: conn.Conn, N: maxConnectResponse}
	reader := bufio.NewReaderSize(limited, 1<<10)
	answer, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect})
	if err != nil {
		if limited.N <= 0 {
			return &Error{Reason: Garbage, Detail: "response to CONNECT is too large"}
		}
		return err
	}
	if err := StatusError(answer.StatusCode, d.BasicAuth() != ""); answer.StatusCode/100 != 2 {
		return err
	}
	conn.buffered = reader
	return nil
}

// StatusError returns the error for a status other than 2xx from a proxy. authorized means that the request had
// credentials.
func StatusError(status int, authorized bool) error {
	err := &Error{Detail: fmt.Sprintf("status %d", status), Status: status}
	switch {
	case status == http.StatusProxyAuthRequired && authorized:
		err.Reason = AuthRejected
	case status == http.StatusProxyAuthRequired:
		err.Reason = AuthRequired
	case status == http.StatusForbidden, status == http.StatusUnauthorized, status == http.StatusMethodNotAllowed,
		status == http.StatusTooManyRequests:
		err.Reason = Denied
	case status >= 500 && status != http.StatusNotImplemented && status != http.StatusHTTPVersionNotSupported:
		err.Reason = Upstream
	default:
		err.Reason, err.TargetSent = Garbage, true // like 400, which some proxies return for any unreachable target
	}
	return err
}
