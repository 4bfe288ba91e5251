package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"muster/internal/addressfilter"
)

// Reason says in one word why a proxy could not be used. The words are stable: they are stored, counted and printed.
type Reason string

// Reasons that a connection through a proxy can fail for.
const (
	Refused        Reason = "refused"         // nothing listens there
	Unreachable    Reason = "unreachable"     // no route, or a router said no
	ConnectTimeout Reason = "connect_timeout" // no answer to the TCP handshake
	NoSuchHost     Reason = "no_such_host"    // the proxy's own name does not resolve
	PrivateAddress Reason = "private_address" // the proxy's own name has an address that is not public
	Timeout        Reason = "timeout"         // it accepts, and then says nothing in time
	Closed         Reason = "closed"          // it closes the connection before it has answered
	Garbage        Reason = "garbage"         // what it answers is not the protocol
	AuthRequired   Reason = "auth_required"   // it wants credentials and has been given none
	AuthRejected   Reason = "auth_rejected"   // it does not take the credentials it has been given
	Denied         Reason = "denied"          // it forbids this use of it
	Upstream       Reason = "upstream"        // it says that it cannot reach the target
	TLS            Reason = "tls"             // no TLS with the proxy itself
	Unsupported    Reason = "unsupported"     // its protocol cannot carry this target
	Local          Reason = "local"           // this machine is out of descriptors, ports or buffers: no fault of the proxy
	Canceled       Reason = "canceled"        // the caller gave up: no fault of the proxy
)

// Error is a failure with its reason. Every error of this package is one.
type Error struct {
	Reason Reason
	Detail string // what exactly was seen, without credentials
	Err    error  // the cause, when there is one
	Status int    // of HTTP that the proxy answered with, when that is the failure
	Asked  bool   // the target had been sent to the proxy, so that the failure may be the target's
}

func (e *Error) Error() string {
	switch {
	case e.Err != nil && e.Detail != "":
		return fmt.Sprintf("%s: %s: %v", e.Reason, e.Detail, e.Err)
	case e.Err != nil:
		return fmt.Sprintf("%s: %v", e.Reason, e.Err)
	case e.Detail != "":
		return fmt.Sprintf("%s: %s", e.Reason, e.Detail)
	}
	return string(e.Reason)
}

func (e *Error) Unwrap() error { return e.Err }

// ReasonOf returns the reason in err's chain, or "" when there is none.
func ReasonOf(err error) Reason {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return ""
}

// MayBeTargets reports whether err came after the target had been sent to the proxy: what it does then may be the
// target's fault.
func MayBeTargets(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Asked
}

// localErrors are what the machine we run on answers when it is the bottleneck.
var localErrors = []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL, syscall.EAGAIN}

// dialError gives a failed TCP connection to the proxy its reason.
func dialError(ctx context.Context, err error) error {
	var dns *net.DNSError
	switch {
	case ctx.Err() == context.Canceled:
		return &Error{Reason: Canceled, Err: ctx.Err()}
	case IsLocal(err):
		return &Error{Reason: Local, Err: err}
	case addressfilter.Is(err):
		return &Error{Reason: PrivateAddress, Err: err}
	case errors.Is(err, syscall.ECONNREFUSED):
		return &Error{Reason: Refused, Err: err}
	case errors.As(err, &dns):
		return &Error{Reason: NoSuchHost, Err: err}
	case isTimeout(err), errors.Is(err, syscall.ETIMEDOUT):
		return &Error{Reason: ConnectTimeout, Err: err}
	}
	return &Error{Reason: Unreachable, Err: err}
}

// Classify gives a failure on an open connection its reason; a failure that already has one keeps it.
func Classify(ctx context.Context, doing string, err error) error {
	switch {
	case ReasonOf(err) != "":
		return err
	case ctx.Err() == context.Canceled:
		return &Error{Reason: Canceled, Detail: doing, Err: ctx.Err()}
	case IsLocal(err):
		return &Error{Reason: Local, Detail: doing, Err: err}
	case isTimeout(err):
		return &Error{Reason: Timeout, Detail: doing, Err: err}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNABORTED):
		return &Error{Reason: Closed, Detail: doing, Err: err}
	}
	return &Error{Reason: Garbage, Detail: doing, Err: err}
}

// IsLocal reports whether it is this machine that failed: out of descriptors, ports or memory.
func IsLocal(err error) bool {
	for _, local := range localErrors {
		if errors.Is(err, local) {
			return true
		}
	}
	return false
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) ||
		(errors.As(err, &timeout) && timeout.Timeout())
}
