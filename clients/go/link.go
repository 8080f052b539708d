package bccn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	serviceSocket = "/run/bccnd/bus.sock"

	// A failed connect to a local socket costs microseconds, so the first pause is short.
	backoffFirst = 20 * time.Millisecond
	backoffLimit = time.Second

	// The pause when the kernel has no memory for a packet.
	memoryPause = time.Millisecond
)

var (
	// errGone: the connection ended before the packet was sent. errEnded: and there will be no other.
	errGone   = &Error{Code: ErrUnavailable, Text: "the daemon went away"}
	errEnded  = &Error{Code: ErrUnavailable, Text: "the daemon went away, and the client does not reconnect"}
	errClosed = &Error{Code: ErrClosed, Text: "the client is closed"}

	errNoContext = &Error{Code: ErrInvalid, Text: "the context is nil"}
	errOverflow  = &Error{Code: ErrBacklog, Text: "too many messages came before its answer"}

	past = time.Unix(1, 0)
)

// A link is one connection. Client.sending guards the fields below packLimit.
type link struct {
	conn      *net.UnixConn
	raw       syscall.RawConn
	packLimit int // bytes; 0: packing is not agreed

	packet  []byte
	patient bool // write waits for room
	err     error
	write   func(fd uintptr) bool
}

// --- connecting ---

// socketPath returns address, or $BCCN_SOCKET, or the first that exists of the service's socket and the user's own. If
// neither exists, it returns that of the service, so that the error names it.
func socketPath(address string) string {
	exists := func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	}
	if address == "" {
		address = os.Getenv("BCCN_SOCKET")
	}
	if address != "" {
		return address
	}
	own := os.Getenv("XDG_RUNTIME_DIR") + "/bccnd/bus.sock"
	if !exists(serviceSocket) && own[0] == '/' && exists(own) {
		return own
	}
	return serviceSocket
}

// run is the goroutine that reads and reconnects.
func (c *Client) run(l *link) {
	for l != nil {
		c.disconnected(l, c.read(l))
		if c.options.NoReconnect {
			c.mu.Lock()
			if c.over == nil {
				c.finish(errEnded)
			}
			c.mu.Unlock()
			close(c.ended)
			return
		}
		select { // a daemon may close each connection at once
		case <-time.After(jittered(backoffFirst)):
		case <-c.closed:
			return
		}
		if l, _ = c.connect(c.life, time.Time{}, true); l != nil {
			c.mu.Lock()
			c.notify(Notice{Kind: NoticeReconnected, Text: "connected to the daemon again"})
			c.mu.Unlock()
		}
	}
}

func jittered(pause time.Duration) time.Duration {
	return time.Duration((0.5 + rand.Float64()) * float64(pause))
}

// connect tries until the deadline, or, to reconnect, until ctx ends. It tries a busy daemon for Options.Timeout.
func (c *Client) connect(ctx context.Context, deadline time.Time, again bool) (*link, error) {
	begun := time.Now()
	for backoff := backoffFirst; ; backoff = min(2*backoff, backoffLimit) {
		l, err := c.attempt(ctx, again)
		if err == nil {
			return l, nil
		}
		pause := jittered(backoff)
		if end := begun.Add(c.options.Timeout); errors.Is(err, syscall.EAGAIN) && end.After(deadline) {
			deadline = end
		}
		if !again && (!errors.Is(err, ErrUnavailable) || time.Now().Add(pause).After(deadline)) {
			return nil, err
		}
		c.mu.Lock()
		c.unreachable = err
		c.mu.Unlock()
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, overdue(ctx, ErrUnavailable, err.Error())
		}
	}
}

func (c *Client) attempt(ctx context.Context, again bool) (*link, error) {
	path := socketPath(c.path)
	dialer := net.Dialer{Timeout: c.options.Timeout}
	conn, err := dialer.DialContext(ctx, "unixpacket", path)
	if ctx.Err() != nil {
		if err == nil {
			conn.Close()
		}
		return nil, overdue(ctx, ErrUnavailable, "no time to connect to "+path)
	}
	if errors.Is(err, os.ErrPermission) && !again {
		return nil, &Error{Code: ErrRefused, Text: "no permission to connect to " + path, cause: err}
	}
	if errors.Is(err, syscall.EAGAIN) {
		text := fmt.Sprintf("the daemon at %s is busy: more programs connect than it accepts", path)
		return nil, &Error{Code: ErrUnavailable, Text: text, cause: err}
	}
	if err != nil {
		text := fmt.Sprintf("no daemon at %s: %v", path, errors.Unwrap(err))
		return nil, &Error{Code: ErrUnavailable, Text: text, cause: err}
	}
	l := &link{conn: conn.(*net.UnixConn)}
	l.write = func(fd uintptr) bool {
		_, l.err = syscall.Write(int(fd), l.packet)
		return !l.patient || l.err != syscall.EAGAIN
	}
	if l.raw, err = l.conn.SyscallConn(); err == nil {
		err = c.greet(ctx, l, again)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return l, nil
}

// greet sends the settings, watches and subscriptions to a new connection, and makes it the client's.
func (c *Client) greet(ctx context.Context, l *link, again bool) error {
	c.mu.Lock()
	packets, queries := c.greeting(l)
	c.asked = queries
	c.mu.Unlock()
	err := l.conn.SetDeadline(time.Now().Add(c.options.Timeout))
	stop := context.AfterFunc(ctx, func() { l.conn.Close() })
	for i := 0; i < len(packets) && err == nil; i++ {
		_, err = l.conn.Write(packets[i])
	}
	for buffer, left := make([]byte, receiveLimit+1), len(queries); err == nil && left > 0; {
		err = c.readPacket(l, buffer)
		c.mu.Lock()
		if left = len(c.asked); err == nil && c.waiting > overflowLimit {
			err = errOverflow
		}
		c.mu.Unlock()
	}
	intact := stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = nil
	if !intact {
		return overdue(ctx, ErrUnavailable, "the daemon does not answer")
	}
	if err != nil {
		return &Error{Code: ErrUnavailable, Text: fmt.Sprintf("the daemon does not answer: %v", err), cause: err}
	}
	for _, query := range queries {
		switch {
		case query.err == nil:
		case !again:
			return query.err
		case errors.Is(query.err, ErrNameTaken): // our old connection may hold the name a little longer
			return &Error{Code: ErrUnavailable, Text: query.err.Error(), cause: query.err}
		default:
			c.notify(Notice{Kind: NoticeRejected, Text: query.err.Error(), Count: 1, Err: query.err})
		}
	}
	if c.isClosed() {
		return errClosed
	}
	c.linked(l)
	return l.conn.SetDeadline(time.Time{})
}

// greeting returns the packets for a new connection, and the queries that they answer; under mu.
func (c *Client) greeting(l *link) (packets [][]byte, queries []*query) {
	c.withdrawn = nil // this link has what is held, and no more
	say := func(wanted bool, key, value string, granted func(string)) {
		if wanted {
			packet, _ := buildControl(key, value)
			packets, queries = append(packets, packet), append(queries, newQuery(key, granted))
		}
	}
	o := c.options
	say(c.wantedName != "", "name", c.wantedName, nil)
	say(o.Separator != SeparatorSlash, "separator", string(o.Separator), nil)
	say(o.Format != "" && o.Format != FormatPlain, "format", string(o.Format), nil)
	say(o.Pack, "pack", "on", func(value string) {
		_, limit, _ := strings.Cut(value, " ")
		l.packLimit, _ = strconv.Atoi(limit)
	})
	say(o.NoEcho, "echo/off", "", nil)
	say(o.Queue != Queue{}, "queue", o.Queue.value(), nil)
	say(o.Tap != TapOff, "tap", string(o.Tap), nil)
	say(c.heartbeat != "", "heartbeat", c.heartbeat, nil)
	say(c.listening || c.hearing || len(c.listeners) > 0, "listen", "", nil)
	for pattern := range c.watches {
		say(true, "watch", pattern, nil)
	}
	for _, s := range c.subscriptions {
		packets = append(packets, []byte("SUB "+s.pattern))
	}
	say(true, "whoami", "", func(value string) { c.name = value })
	return packets, queries
}

// linked sets the link, or nil for none, and wakes every await; under mu.
func (c *Client) linked(l *link) {
	c.link, c.unreachable = l, errGone
	limit := 0
	if l != nil {
		limit = l.packLimit
	}
	c.packing.Store(int64(limit))
	close(c.changed)
	c.changed = make(chan struct{})
}

// disconnected ends a link that has been read to its end.
func (c *Client) disconnected(l *link, reason error) {
	l.conn.Close()
	c.sending <- struct{}{} // what was sent at the last moment is counted, and so in doubt
	defer c.sending.leave()
	c.mu.Lock()
	doubt := c.published - c.confirmed
	c.inDoubt, c.confirmed = c.inDoubt+doubt, c.published
	c.linked(nil)
	for _, query := range c.asked {
		query.finish("", errGone)
	}
	c.asked = nil
	if !c.isClosed() {
		c.notify(Notice{Kind: NoticeDisconnected, Text: reason.Error(), Count: doubt})
	}
	c.mu.Unlock()
}

// --- reading ---

// press makes the reader go on although nobody receives, until the caller calls release.
func (c *Client) press() (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pressing++
	c.room.Signal()
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.pressing--
	}
}

// read reads a link to its end, and returns why it ended.
func (c *Client) read(l *link) (err error) {
	for buffer := make([]byte, receiveLimit+1); err == nil; err = c.readPacket(l, buffer) {
		c.mu.Lock()
		for !c.isClosed() && c.waiting > readAhead && (c.pressing == 0 || c.waiting > backlogLimit) {
			c.room.Wait()
		}
		withdrawn := len(c.withdrawn) > 0
		c.mu.Unlock()
		if withdrawn {
			c.takeBackSoon(l)
		}
	}
	return err
}

func (c *Client) readPacket(l *link, buffer []byte) error {
	size, err := l.conn.Read(buffer)
	if errors.Is(err, syscall.ECONNRESET) { // it comes once; earlier packets can still be read
		size, err = l.conn.Read(buffer)
	}
	if errors.Is(err, io.EOF) {
		return errGone
	}
	if err != nil {
		return err
	}
	if size > receiveLimit {
		return &Error{Code: ErrProtocol, Text: fmt.Sprintf("the daemon sent more than %d bytes at once", receiveLimit)}
	}
	packet := append([]byte(nil), buffer[:size]...)
	c.mu.Lock()
	if isPack(packet) {
		err = unpack(packet, c.handle)
	} else {
		err = c.handle(packet)
	}
	c.mu.Unlock()
	return err
}

// handle handles one packet; it and the functions that it calls run under mu.
func (c *Client) handle(packet []byte) error {
	message, key, value, err := parse(packet, c.lastChannel)
	directed := strings.HasPrefix(message.Channel, "!")
	switch {
	case err != nil:
		return err
	case key != "":
		c.control(key, value)
	case directed && !message.isRejected() && (c.isReply(message) || !c.isListening()):
		// A reply, or a message that came only because this client listens for replies.
	case c.isUnwanted(message.Channel):
	default:
		c.lastChannel = message.Channel
		c.deliver(&message)
	}
	return nil
}

func (c *Client) isListening() bool {
	return c.options.Tap != TapOff || c.listening || len(c.subscriptions) > 0 || len(c.listeners) > 0
}

func (c *Client) control(key, value string) {
	switch {
	case key == "error":
		code, text, _ := strings.Cut(value, " ")
		c.complain(&Error{Code: Code(code), Text: fmt.Sprintf("%s (%s)", text, code)})
	case key == "dropped":
		count, _ := strconv.ParseUint(value, 10, 64)
		c.missed(count)
		text := value + " lost: messages came faster than they were read"
		c.notify(Notice{Kind: NoticeLost, Text: text, Count: count})
	case key == "revoked":
		c.notify(Notice{Kind: NoticeRevoked, Text: "no longer allowed: " + value, Count: 1})
	case key == "wanted":
		c.news(value)
	case key == "closing":
		c.notify(Notice{Kind: NoticeClosing, Text: "the daemon closes the connection: " + value})
	case len(c.asked) > 0 && c.asked[0].key == key:
		c.answered().finish(value, nil)
	} // Other keys are notices of a newer daemon.
}

// complain gives an error to the query or request that it answers, and otherwise to the next Barrier.
func (c *Client) complain(err *Error) {
	about, _, _ := strings.Cut(err.Text, " ")
	switch {
	case about == "CMSG" && len(c.asked) > 0:
		c.answered().finish("", err)
	case (about == "SUB" || about == "UNSUB") && len(c.asked) > 0:
		if c.asked[0].complaint == nil {
			c.asked[0].complaint = err
		}
	case c.blame(err):
	default:
		if c.rejections++; c.rejections == 1 {
			c.rejection = err
		}
		c.notify(Notice{Kind: NoticeRejected, Text: err.Error(), Count: 1, Err: err})
	}
}

// answered removes the first query, which has its answer: the daemon has processed everything sent before it, too.
func (c *Client) answered() *query {
	query := c.asked[0]
	c.asked = c.asked[1:]
	c.confirmed = max(c.confirmed, query.published)
	return query
}

// missed has every stream report a gap before its next message.
func (c *Client) missed(count uint64) {
	c.lost += count
	c.stream.lost += count
	for s := range c.everySubscription() {
		if s.apart {
			s.stream.lost += count
		}
	}
	for _, s := range c.listeners {
		s.stream.lost += count
	}
}
