package tunnel

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// maxConnectAnswer bounds the head of a proxy's answer to CONNECT.
const maxConnectAnswer = 16 << 10

// BasicAuth returns the value of the Proxy-Authorization header for the proxy, or "" when it has no credentials.
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
	conn.asked = true
	if _, err := io.WriteString(conn.Conn, request.String()); err != nil {
		return err
	}

	// The limit is for the head only; what follows it is already the target's.
	limited := &io.LimitedReader{R: conn.Conn, N: maxConnectAnswer}
	reader := bufio.NewReaderSize(limited, 1<<10)
	answer, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect})
	if err != nil {
		if limited.N <= 0 {
			return &Error{Reason: Garbage, Detail: "endless answer to CONNECT"}
		}
		return err
	}
	if err := StatusError(answer.StatusCode, d.BasicAuth() != ""); answer.StatusCode/100 != 2 {
		return err
	}
	conn.buffered = reader
	return nil
}

// StatusError is what a status other than 2xx says of the proxy that sent it; authorized says that it got credentials.
func StatusError(status int, authorized bool) error {
	err := &Error{Detail: fmt.Sprintf("answered %d", status), Status: status}
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
		err.Reason, err.Asked = Garbage, true // as 400, which some say of any target that they cannot reach
	}
	return err
}
