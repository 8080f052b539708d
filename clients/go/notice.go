package bccn

import "fmt"

// A NoticeKind says what a Notice is about. Later versions may have more kinds.
type NoticeKind string

const (
	// The daemon dropped Count messages: this program reads too slowly.
	NoticeLost NoticeKind = "lost"
	// The daemon rejected a message, or a setting on a new connection, Count times; Err says why.
	NoticeRejected NoticeKind = "rejected"
	// The daemon took a right back, and what rested on it has ended.
	NoticeRevoked NoticeKind = "revoked"
	// The daemon closes the connection; Text says why.
	NoticeClosing NoticeKind = "closing"
	// The connection has ended; the daemon has perhaps not taken Count messages.
	NoticeDisconnected NoticeKind = "disconnected"
	// There is a connection again, with every subscription in force.
	NoticeReconnected NoticeKind = "reconnected"
	// The client dropped Count messages of its stream: this program has callbacks, and never receives.
	NoticeUnclaimed NoticeKind = "unclaimed"
)

// A Notice reports something that happened to the connection.
type Notice struct {
	Kind  NoticeKind
	Text  string // a line for people
	Count uint64
	Err   error // of NoticeRejected: an *Error
}

func (n Notice) String() string {
	if n.Kind == NoticeRejected && n.Count > 1 {
		return fmt.Sprintf("%s, %d times", n.Text, n.Count)
	}
	return n.Text
}

// So many notices wait for OnNotice one by one. The daemon can reject every message; beyond this a notice is counted by
// the last one of its kind.
const noticesLimit = 256

// notify has a notice told; under mu.
func (c *Client) notify(notice Notice) {
	waiting := c.notices
	for i := len(waiting) - 1; i >= 0; i-- {
		last := &waiting[i]
		alike := last.Kind == notice.Kind && (last.Text == notice.Text || len(waiting) >= noticesLimit)
		if alike {
			last.Count += notice.Count
			return
		}
		if len(waiting) < noticesLimit { // only the last one, as they are in order
			break
		}
	}
	c.notices = append(c.notices, notice)
	if !c.telling {
		c.telling = true
		go c.tell()
	}
}

// tell calls OnNotice with each notice that waits. It is a goroutine of its own, so OnNotice may do anything.
func (c *Client) tell() {
	for {
		c.mu.Lock()
		if len(c.notices) == 0 {
			c.notices, c.telling = nil, false
			c.mu.Unlock()
			return
		}
		notice := c.notices[0]
		c.notices = c.notices[1:]
		c.mu.Unlock()
		c.options.OnNotice(notice)
	}
}
