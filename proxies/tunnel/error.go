package tunnel

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"syscall"

	"muster/internal/addressfilter"
)

// Reason is a code for the reason why a proxy was unusable. The codes are stable: they are stored, counted and
// printed.
type Reason string

// Reasons of failed connections through a proxy.
const (
	Refused        Reason = "refused"         // the port is closed
	Unreachable    Reason = "unreachable"     // no route to the proxy
	ConnectTimeout Reason = "connect_timeout" // no response to the TCP handshake
	NoSuchHost     Reason = "no_such_host"    // the proxy's own name does not resolve
	PrivateAddress Reason = "private_address" // the proxy's own name has an address that is not public
	Timeout        Reason = "timeout"         // the proxy accepts the connection, but does not respond in time
	Closed         Reason = "closed"          // the proxy closes the connection before it has responded
	Garbage        Reason = "garbage"         // the response violates the protocol
	AuthRequired   Reason = "auth_required"   // the proxy requires credentials and received none
	AuthRejected   Reason = "auth_rejected"   // the proxy or its protocol rejects the credentials
	Denied         Reason = "denied"          // the proxy forbids this use
	Upstream       Reason = "upstream"        // the proxy reports that the target is unreachable
	TLS            Reason = "tls"             // the TLS handshake with the proxy failed
	Unsupported    Reason = "unsupported"     // the protocol of the proxy does not support this target
	Local          Reason = "local"           // this machine is out of file descriptors, ports or buffers; not caused by the proxy
	Canceled       Reason = "canceled"        // the caller canceled the context; not caused by the proxy
)

// An Error is a failure with its reason. All errors of this package have this type.
type Error struct {
	Reason     Reason
	Detail     string // details, without credentials
	Err        error  // the cause, if any
	Status     int    // the HTTP status of a refusal by the proxy
	TargetSent bool   // the target was sent to the proxy, so the target may have caused the failure
}

func (e *Error) Error() string {
	text := string(e.Reason)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// ReasonOf returns the reason in err's chain, or "" if there is none.
func ReasonOf(err error) Reason {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return ""
}

// MayBeTargets reports whether the target may have caused err, because its address had been sent to the proxy.
func MayBeTargets(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.TargetSent
}

// localErrors are the system errors for a shortage of resources on this machine.
var localErrors = []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL, syscall.EAGAIN}

// dialError returns err, a failed TCP connection to the proxy, with its reason.
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
	case IsTimeout(err), errors.Is(err, syscall.ETIMEDOUT):
		return &Error{Reason: ConnectTimeout, Err: err}
	}
	return &Error{Reason: Unreachable, Err: err}
}

// Classify returns err, a failure on an open connection, with its reason. An error that has one is unchanged.
func Classify(ctx context.Context, doing string, err error) error {
	switch {
	case ReasonOf(err) != "":
		return err
	case ctx.Err() == context.Canceled:
		return &Error{Reason: Canceled, Detail: doing, Err: ctx.Err()}
	case IsLocal(err):
		return &Error{Reason: Local, Detail: doing, Err: err}
	case IsTimeout(err):
		return &Error{Reason: Timeout, Detail: doing, Err: err}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNABORTED):
		return &Error{Reason: Closed, Detail: doing, Err: err}
	}
	return &Error{Reason: Garbage, Detail: doing, Err: err}
}

// IsLocal reports whether err is a shortage of resources on this machine: file descriptors, ports or memory.
func IsLocal(err error) bool {
	return slices.ContainsFunc(localErrors, func(local error) bool { return errors.Is(err, local) })
}

// IsTimeout reports whether err is a timeout.
func IsTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) ||
		(errors.As(err, &timeout) && timeout.Timeout())
}
