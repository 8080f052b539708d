package bccn

import (
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// A Format says how the daemon delivers messages.
type Format string

const (
	FormatPlain Format = "plain" // channel and payload; the default
	FormatFull  Format = "full"  // also who sent the message, and when: see Message
)

// A Separator divides patterns and channels into tokens.
type Separator string

const (
	SeparatorSlash Separator = "/" // the default
	SeparatorDot   Separator = "."
)

// A Tap also shows every datagram of the segment, with its verdict. It needs the right to tap.
type Tap string

const (
	TapOff       Tap = "off" // the default
	TapOn        Tap = "on"
	TapInterface Tap = "interface" // with the interface that each datagram came by
)

// A Policy says what the daemon does when no more may wait for this client.
type Policy string

const (
	PolicyDropOldest Policy = "drop-oldest"
	PolicyDropNewest Policy = "drop-newest"
	PolicyBlock      Policy = "block"      // publishers of this host wait
	PolicyDisconnect Policy = "disconnect" // the daemon closes the connection
)

// A Queue says what may wait for this client in the daemon. What is zero is as the daemon's settings have it.
type Queue struct {
	Packets int
	Bytes   int
	Policy  Policy
}

// value returns the queue as the value of its control request.
func (q Queue) value() string {
	var fields []string
	if q.Packets != 0 {
		fields = append(fields, fmt.Sprintf("packets=%d", q.Packets))
	}
	if q.Bytes != 0 {
		fields = append(fields, fmt.Sprintf("bytes=%d", q.Bytes))
	}
	if q.Policy != "" {
		fields = append(fields, "policy="+string(q.Policy))
	}
	return strings.Join(fields, " ")
}

// Options of a client. The zero value has the defaults. There may be more fields in later versions: name those that you
// set.
type Options struct {
	Name        string        // own src; "": the daemon gives <host>/<program>/<pid>
	Format      Format        // "": FormatPlain
	Pack        bool          // several messages share a packet, both ways: bursts are many times faster
	NoEcho      bool          // own messages that match are not received
	Separator   Separator     // "": SeparatorSlash
	Queue       Queue         // what may wait in the daemon
	Tap         Tap           // "": TapOff
	NoReconnect bool          // once the connection has ended, calls fail with ErrUnavailable
	Timeout     time.Duration // how long a call whose context has no deadline waits for the daemon; 0: five seconds
	Wait        time.Duration // how long Open keeps trying

	// OnNotice gets the notices about the connection, one after the other, in a goroutine of its own. If it is nil,
	// they are warnings of log/slog.
	OnNotice func(Notice)
}

const defaultTimeout = 5 * time.Second

// completed returns the options with the defaults in place of zero values.
func (o Options) completed() Options {
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Separator == "" {
		o.Separator = SeparatorSlash
	}
	if o.Tap == "" {
		o.Tap = TapOff
	}
	if o.OnNotice == nil {
		o.OnNotice = func(notice Notice) {
			slog.Warn("bccn: "+notice.Text, "kind", notice.Kind, "count", notice.Count)
		}
	}
	return o
}
