package bccn

import "errors"

// A Code says what went wrong in a word of the protocol. It is an error itself, for errors.Is:
//
//	if errors.Is(err, bccn.TooLarge) { ... }
type Code string

const (
	Invalid     Code = "invalid"     // an argument that cannot be sent at all
	Unavailable Code = "unavailable" // no daemon, or it went away and did not come back in time
	Unconfirmed Code = "unconfirmed" // the daemon went away: messages may not have been published
	Timeout     Code = "timeout"     // the daemon does not answer or takes no more, or no answer to a request came
	Backlog     Code = "backlog"     // too many messages wait: the program must receive them before it asks
	Closed      Code = "closed"      // the client is closed
	Protocol    Code = "protocol"    // the daemon sent a packet that is not of this protocol
	Nobody      Code = "nobody"      // nobody listens to this request

	// The daemon rejected it. The daemon may have more codes than these.
	BadPacket     Code = "bad-packet"
	BadChannel    Code = "bad-channel"
	BadPattern    Code = "bad-pattern"
	BadValue      Code = "bad-value"
	BadName       Code = "bad-name"
	NameTaken     Code = "name-taken"
	NotSubscribed Code = "not-subscribed"
	TooLarge      Code = "too-large"
	UnknownKey    Code = "unknown-key"
	Refused       Code = "refused" // no right to it
	Limit         Code = "limit"
	NotAgreed     Code = "not-agreed"
	BadDatagram   Code = "bad-datagram"
)

func (c Code) Error() string { return string(c) }

// An Error is returned by every function of this package, except that Receive and Serve return the error of a context
// that ends.
type Error struct {
	Code Code
	Text string // a line for people; in an error of the daemon it begins with the packet

	cause error
}

func (e *Error) Error() string { return e.Text }

// Is makes errors.Is(err, Code) work.
func (e *Error) Is(target error) bool { return target == e.Code }

// Unwrap returns the cause, if there is one: for a Timeout the error of the context.
func (e *Error) Unwrap() error { return e.cause }

func isCode(err error, codes ...Code) bool {
	for _, code := range codes {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}
