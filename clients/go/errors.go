package bccn

// A Code says what went wrong, in a word of the protocol. It is an error itself, for errors.Is:
//
//	if errors.Is(err, bccn.ErrTooLarge) { ... }
//
// The daemon may have more codes than this package knows: errors.Is(err, bccn.Code("new-code")) checks one of those.
type Code string

const (
	ErrInvalid     Code = "invalid"     // an argument that cannot be sent at all
	ErrUnavailable Code = "unavailable" // no daemon, or it went away and did not come back in time; nothing was sent
	ErrUnconfirmed Code = "unconfirmed" // the connection broke since the last barrier: messages may be missing
	ErrTimeout     Code = "timeout"     // the daemon does not answer or takes no more, or no reply came
	ErrNobody      Code = "nobody"      // nobody listens to this request
	ErrBacklog     Code = "backlog"     // too many messages wait: the program must receive before it asks
	ErrProtocol    Code = "protocol"    // the daemon sent a packet that is not of this protocol
	ErrClosed      Code = "closed"      // the client, or the subscription, is closed

	// The daemon rejected it.
	ErrBadPacket     Code = "bad-packet"
	ErrBadChannel    Code = "bad-channel"
	ErrBadPattern    Code = "bad-pattern"
	ErrBadValue      Code = "bad-value"
	ErrBadName       Code = "bad-name"
	ErrNameTaken     Code = "name-taken"
	ErrNotSubscribed Code = "not-subscribed"
	ErrTooLarge      Code = "too-large"
	ErrUnknownKey    Code = "unknown-key" // the daemon is older than this request
	ErrRefused       Code = "refused"     // no right to it
	ErrLimit         Code = "limit"
	ErrNotAgreed     Code = "not-agreed"
	ErrBadDatagram   Code = "bad-datagram"
)

func (c Code) Error() string { return string(c) }

// An Error is returned by every function of this package, with one exception: when its context is cancelled, a call
// returns the error of that context, and Receive does so whenever its context ends.
type Error struct {
	Code Code
	Text string // a line for people; in an error of the daemon it begins with the packet

	cause error
}

func (e *Error) Error() string { return e.Text }

// Is makes errors.Is(err, Code) work.
func (e *Error) Is(target error) bool { return target == e.Code }

// Unwrap returns the cause, if there is one: for an ErrTimeout the error of the context.
func (e *Error) Unwrap() error { return e.cause }
