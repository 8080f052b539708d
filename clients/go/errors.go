package bccn

import "errors"

// A Code says what went wrong, in a word of the protocol. It is an error itself, for errors.Is:
//
//	if errors.Is(err, bccn.TooLarge) { ... }
type Code string

const (
	Invalid     Code = "invalid"     // an argument that cannot be sent at all
	Unavailable Code = "unavailable" // no daemon, or it went away and did not come back in time
	Unconfirmed Code = "unconfirmed" // it is back, but what was handed to the one before may not have been published
	Timeout     Code = "timeout"     // the daemon, or whoever was asked, does not answer; or it takes no more
	Backlog     Code = "backlog"     // this program asks and asks, and does not receive what waits for it
	Closed      Code = "closed"      // the client was closed
	Protocol    Code = "protocol"    // the daemon sent what is not of this protocol
	Nobody      Code = "nobody"      // a request where nobody listens

	// The daemon said no. It may have more codes than these.
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

// An Error is what every function of this package returns, but for the end of the caller's own context.
type Error struct {
	Code Code
	Text string // a line for people; of the daemon's errors it begins with the packet

	cause error
}

func (e *Error) Error() string { return e.Text }

// Is makes errors.Is(err, Code) work.
func (e *Error) Is(target error) bool { return target == e.Code }

// Unwrap gives the cause, where there is one: of a Timeout the context's error.
func (e *Error) Unwrap() error { return e.cause }

func isCode(err error, codes ...Code) bool {
	for _, code := range codes {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}
