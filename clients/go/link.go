package bccn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
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
	// errGone: the connection ended before the packet was sent.
	errGone   = &Error{Code: Unavailable, Text: "the daemon went away"}
	errClosed = &Error{Code: Closed, Text: "the client is closed"}
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

// A query is a control request without an answer yet.
type query struct {
	key       string             // of the answer
	published uint64             // messages sent before the request
	granted   func(value string) // called with the answer, unless that is an error or nobody waits for it
	settled   func()             // called with any answer
	before    []byte             // a packet that goes before the request
	said      bool               // before has left
	pattern   string             // of a SUB before it
	came      uint64             // messages, when the query was made
	complaint error              // about the SUB or UNSUB sent with the request
	value     string
	err       error
	done      chan struct{}
}

func newQuery(key string, granted func(string)) *query {
	if key == "ping" {
		key = "pong"
	}
	return &query{key: key, granted: granted, done: make(chan struct{})}
}

func (q *query) finish(value string, err error) {
	if q.value, q.err = value, err; err == nil {
		q.err = q.complaint
	}
	if q.err == nil && q.granted != nil {
		q.granted(value)
	}
	if q.settled != nil {
		q.settled()
	}
	close(q.done)
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
		if l, _ = c.connect(time.Time{}, true); l != nil {
			c.options.OnNotice(Notice{Kind: "reconnected", Text: "connected to the daemon again"})
		}
	}
}

// connect tries until the deadline, or, to reconnect, until the client is closed. It tries a busy daemon for
// Options.Timeout.
func (c *Client) connect(deadline time.Time, again bool) (*link, error) {
	begun := time.Now()
	for backoff := backoffFirst; !c.isClosed(); backoff = min(2*backoff, backoffLimit) {
		l, err := c.attempt(again)
		if err == nil {
			return l, nil
		}
		pause := time.Duration((0.5 + rand.Float64()) * float64(backoff))
		if end := begun.Add(c.options.Timeout); errors.Is(err, syscall.EAGAIN) && end.After(deadline) {
			deadline = end
		}
		if !again && (!errors.Is(err, Unavailable) || time.Now().Add(pause).After(deadline)) {
			return nil, err
		}
		c.mu.Lock()
		c.unreachable = err
		c.mu.Unlock()
		select {
		case <-time.After(pause):
		case <-c.closed:
		}
	}
	return nil, errClosed
}

func (c *Client) attempt(again bool) (*link, error) {
	path := socketPath(c.address)
	conn, err := net.DialTimeout("unixpacket", path, c.options.Timeout)
	if errors.Is(err, os.ErrPermission) && !again {
		return nil, &Error{Code: Refused, Text: "no permission to connect to " + path, cause: err}
	}
	if errors.Is(err, syscall.EAGAIN) {
		text := fmt.Sprintf("the daemon at %s is busy: more programs connect than it accepts", path)
		return nil, &Error{Code: Unavailable, Text: text, cause: err}
	}
	if err != nil {
		return nil, &Error{Code: Unavailable, Text: fmt.Sprintf("no daemon at %s: %v", path, errors.Unwrap(err)), cause: err}
	}
	l := &link{conn: conn.(*net.UnixConn)}
	l.write = func(fd uintptr) bool {
		_, l.err = syscall.Write(int(fd), l.packet)
		return !l.patient || l.err != syscall.EAGAIN
	}
	if l.raw, err = l.conn.SyscallConn(); err == nil {
		err = c.greet(l, again)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return l, nil
}

// greet sends the settings and subscriptions to a new connection, and makes it the client's.
func (c *Client) greet(l *link, again bool) error {
	c.mu.Lock()
	packets, queries := c.greeting(l)
	c.asked = queries
	c.mu.Unlock()
	err := l.conn.SetDeadline(time.Now().Add(c.options.Timeout))
	for i := 0; i < len(packets) && err == nil; i++ {
		_, err = l.conn.Write(packets[i])
	}
	for buffer, left := make([]byte, receiveLimit), len(queries); err == nil && left > 0; {
		err = c.readPacket(l, buffer)
		c.mu.Lock()
		left = len(c.asked)
		c.mu.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = nil
	if err != nil {
		return &Error{Code: Unavailable, Text: fmt.Sprintf("the daemon does not answer: %v", err), cause: err}
	}
	for _, query := range queries {
		switch {
		case query.err == nil:
		case !again:
			return query.err
		case errors.Is(query.err, NameTaken): // our old connection may hold the name a little longer
			return &Error{Code: Unavailable, Text: query.err.Error(), cause: query.err}
		default:
			c.notices = append(c.notices, Notice{"rejected", query.err.Error(), 1, query.err})
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
	say(o.Separator != "/", "separator", o.Separator, nil)
	say(o.Full, "format", "full", nil)
	say(o.Pack, "pack", "on", func(value string) {
		_, limit, _ := strings.Cut(value, " ")
		l.packLimit, _ = strconv.Atoi(limit)
	})
	say(o.NoEcho, "echo/off", "", nil)
	say(o.Queue != "", "queue", o.Queue, nil)
	say(o.Tap, "tap", "on", nil)
	say(c.heartbeat != "", "heartbeat", c.heartbeat, nil)
	say(c.listening || c.hearing, "listen", "", nil)
	for _, pattern := range c.subscriptions {
		packets = append(packets, []byte("SUB "+pattern))
	}
	say(true, "whoami", "", func(value string) { c.name = value })
	return packets, queries
}

// linked sets the link, or nil for none, and wakes every await; under mu.
func (c *Client) linked(l *link) {
	c.link, c.unreachable = l, errGone
	close(c.changed)
	c.changed = make(chan struct{})
}

// disconnected ends a link that has been read to its end.
func (c *Client) disconnected(l *link, reason error) {
	l.conn.Close()
	c.mu.Lock()
	doubt := c.published - c.confirmed
	c.inDoubt, c.confirmed = c.inDoubt+doubt, c.published
	c.linked(nil)
	for _, query := range c.asked {
		query.finish("", errGone)
	}
	c.asked = nil
	c.mu.Unlock()
	if !c.isClosed() {
		c.options.OnNotice(Notice{"disconnected", reason.Error(), doubt, nil})
	}
}

// --- subscribes that fail ---

// A withdrawal is an UNSUB that nobody waits for, and the ping behind it.
type withdrawal struct {
	pattern string
	said    bool // the UNSUB has left
	pinged  bool // the ping, too
}

// giveUp ends a query that nobody waits for any more, and withdraws its SUB. It reports whether the query was answered
// just before.
func (c *Client) giveUp(l *link, asked *query) (answered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-asked.done:
		return asked.err != errGone
	default:
	}
	asked.granted = nil
	if asked.pattern != "" && asked.said && c.link == l {
		c.withdrawn = append(c.withdrawn, &withdrawal{pattern: asked.pattern})
		c.dropUnwanted(asked.came)
	}
	return false
}

// withdraw has an UNSUB sent on this link, without waiting for it.
func (c *Client) withdraw(l *link, pattern string) {
	c.mu.Lock()
	if c.link == l {
		c.withdrawn = append(c.withdrawn, &withdrawal{pattern: pattern})
	}
	c.mu.Unlock()
	c.takeBackSoon(l)
}

// takeBack sends what is left to send of withdrawals; under sending.
func (c *Client) takeBack(l *link, deadline time.Time) error {
	c.mu.Lock()
	withdrawn := slices.Clone(c.withdrawn)
	c.mu.Unlock()
	for _, each := range withdrawn {
		if each.pinged {
			continue
		}
		if !each.said {
			if err := c.send(l, []byte("UNSUB "+each.pattern), deadline); err != nil {
				return err
			}
			each.said = true
		}
		ping := newQuery("ping", nil)
		ping.settled = func() { c.settle(each) }
		if err := c.enqueue(l, ping, nil); err != nil {
			return err
		}
		if err := c.send(l, []byte("CMSG ping\x00"), deadline); err != nil {
			c.dequeue(ping)
			return err
		}
		c.mu.Lock()
		each.pinged = true
		c.mu.Unlock()
	}
	return nil
}

// takeBackSoon sends what there is room for, unless another goroutine sends: the reader tries again.
func (c *Client) takeBackSoon(l *link) {
	c.mu.Lock()
	pending := c.link == l && slices.ContainsFunc(c.withdrawn, func(each *withdrawal) bool { return !each.pinged })
	c.mu.Unlock()
	if pending && c.sending.TryLock() {
		_ = c.takeBack(l, time.Unix(1, 0))
		c.sending.Unlock()
	}
}

// settle forgets a withdrawal that the daemon has processed; under mu.
func (c *Client) settle(done *withdrawal) {
	c.withdrawn = slices.DeleteFunc(c.withdrawn, func(each *withdrawal) bool { return each == done })
}

// isUnwanted reports whether a message came for nothing but a subscribe that was withdrawn; under mu.
func (c *Client) isUnwanted(channel string) bool {
	if len(c.withdrawn) == 0 || c.options.Tap || strings.HasPrefix(channel, "!") {
		return false
	}
	matches := func(pattern string) bool { return Matches(pattern, channel, c.options.Separator) }
	return slices.ContainsFunc(c.withdrawn, func(each *withdrawal) bool { return matches(each.pattern) }) &&
		!slices.ContainsFunc(c.subscriptions, matches) &&
		!slices.ContainsFunc(c.asked, func(asked *query) bool {
			return asked.granted != nil && asked.pattern != "" && matches(asked.pattern)
		})
}

// dropUnwanted drops the messages that have come since there were so many, and wait for nobody; under mu.
func (c *Client) dropUnwanted(came uint64) {
	q := &c.inbox
	var kept []Message
	lost, number := uint64(0), q.came-uint64(len(q.messages)-q.first)
	for _, message := range q.messages[q.first:] {
		if number++; number > came && c.isUnwanted(message.Channel) {
			lost += message.Lost
			c.waiting -= len(message.Payload) + messageCost
			continue
		}
		message.Lost, lost = message.Lost+lost, 0
		kept = append(kept, message)
	}
	c.lost += lost
	q.messages, q.first = kept, 0
	c.room.Signal()
}

// await waits for a link other than gone.
func (c *Client) await(ctx context.Context, gone *link) (*link, error) {
	defer c.press()()
	for {
		c.mu.Lock()
		l, changed, unreachable := c.link, c.changed, c.unreachable
		c.mu.Unlock()
		if l != nil && l != gone {
			return l, nil
		}
		select {
		case <-changed:
		case <-c.closed:
			return nil, errClosed
		case <-ctx.Done():
			return nil, overdue(ctx, Unavailable, unreachable.Error())
		}
	}
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
	for buffer := make([]byte, receiveLimit); err == nil; err = c.readPacket(l, buffer) {
		c.mu.Lock()
		for !c.isClosed() && c.waiting > readAhead && (c.pressing == 0 || c.waiting > backlogLimit) {
			c.room.Wait()
		}
		c.mu.Unlock()
		c.takeBackSoon(l)
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
	packet := append([]byte(nil), buffer[:size]...)
	c.mu.Lock()
	if isPack(packet) {
		err = unpack(packet, c.handle)
	} else {
		err = c.handle(packet)
	}
	notices := c.notices
	c.notices = nil
	c.mu.Unlock()
	for _, notice := range notices {
		c.options.OnNotice(notice)
	}
	return err
}

// handle handles one packet; it and the functions that it calls run under mu.
func (c *Client) handle(packet []byte) error {
	message, key, value, err := parse(packet)
	directed := strings.HasPrefix(message.Channel, "!")
	switch {
	case err != nil:
		return err
	case key != "":
		c.control(key, value)
	case directed && (c.isAnswer(message) || !c.listening && len(c.subscriptions) == 0):
		// An answer, or a message that came only because this client listens for answers.
	case c.isUnwanted(message.Channel):
	default:
		message.Lost, c.lost = c.lost, 0
		c.put(&c.inbox, message)
	}
	return nil
}

func (c *Client) control(key, value string) {
	switch {
	case key == "error":
		code, text, _ := strings.Cut(value, " ")
		c.complain(&Error{Code: Code(code), Text: fmt.Sprintf("%s (%s)", text, code)})
	case key == "dropped":
		count, _ := strconv.ParseUint(value, 10, 64)
		c.lost += count
		c.notice("lost", value+" lost: messages came faster than they were read", count, nil)
	case key == "revoked":
		c.notice("revoked", "no longer allowed: "+value, 1, nil)
	case key == "closing":
		c.notice("closing", "the daemon closes the connection: "+value, 0, nil)
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
		c.notice("rejected", err.Error(), 1, err)
	}
}

// answered removes the first query, which has its answer: the daemon has processed everything sent before it, too.
func (c *Client) answered() *query {
	query := c.asked[0]
	c.asked = c.asked[1:]
	c.confirmed = max(c.confirmed, query.published)
	return query
}

func (c *Client) notice(kind, text string, count uint64, err error) {
	c.notices = append(c.notices, Notice{kind, text, count, err})
}

// --- sending ---

// send sends a packet on this link within the deadline; under sending. The error is errGone if the link broke first.
func (c *Client) send(l *link, packet []byte, deadline time.Time) error {
	for l.packet, l.patient = packet, false; ; {
		err := l.raw.Write(l.write)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return &Error{Code: Timeout, Text: "not sent: the daemon takes no more messages", cause: err}
		case err != nil:
			return errGone
		case l.err == nil:
			return nil
		case l.err == syscall.EAGAIN: // wait, and keep reading: the daemon may be waiting for us to read
			defer c.press()()
			defer l.conn.SetWriteDeadline(time.Time{})
			l.patient = l.conn.SetWriteDeadline(deadline) == nil
		case l.err == syscall.EMSGSIZE:
			return &Error{Code: TooLarge, Text: fmt.Sprintf("packet: %d bytes, too many to send", len(packet))}
		case l.err == syscall.ENOBUFS || l.err == syscall.ENOMEM:
			if time.Sleep(memoryPause); time.Now().After(deadline) {
				return &Error{Code: Timeout, Text: "not sent: the kernel has no memory for it", cause: l.err}
			}
		case l.err != syscall.EINTR:
			return errGone
		}
	}
}

// transmit sends a packet of so many messages within Options.Timeout, over reconnections and a full socket.
func (c *Client) transmit(packet []byte, messages uint64) error {
	deadline := time.Now().Add(c.options.Timeout)
	c.mu.Lock()
	l := c.link
	c.mu.Unlock()
	for {
		err := error(errGone)
		if l != nil {
			c.sending.Lock()
			err = c.send(l, packet, deadline)
			c.sending.Unlock()
		}
		if err == nil {
			c.mu.Lock()
			if c.link == l {
				c.published += messages
			} else {
				c.inDoubt += messages
			}
			c.mu.Unlock()
		}
		if err != errGone {
			return err
		}
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		l, err = c.await(ctx, l)
		cancel()
		if err != nil {
			return err
		}
	}
}

// ask sends a control request and waits for its answer. If the connection breaks, ask repeats the request on the next.
//
// Both functions run under mu. granted gets the answer, and remembers it for later connections. prepare, which may be
// nil, says what goes before the request on each connection.
func (c *Client) ask(
	ctx context.Context, key, value string, granted func(string), prepare func(*query),
) (string, error) {
	packet, err := buildControl(key, value)
	if err != nil {
		return "", err
	}
	ctx, cancel := c.patience(ctx)
	defer cancel()
	defer c.press()()
	for l := (*link)(nil); ; {
		if l, err = c.await(ctx, l); err == nil && ctx.Err() != nil {
			err = overdue(ctx, Timeout, "no time to ask the daemon")
		}
		if err != nil {
			return "", err
		}
		query := newQuery(key, granted)
		if err = c.submit(ctx, l, query, packet, prepare); err == errGone {
			continue
		}
		if err == nil {
			select {
			case <-query.done:
			case <-c.closed:
				return "", errClosed
			case <-ctx.Done():
				err = overdue(ctx, Timeout, "the daemon does not answer")
			}
		}
		if err != nil && !c.giveUp(l, query) {
			c.takeBackSoon(l)
			return "", err
		}
		if query.err != errGone {
			return query.value, query.err
		}
	}
}

// submit sends what goes before the query, and then the query. After Timeout the query was not sent.
func (c *Client) submit(ctx context.Context, l *link, asked *query, packet []byte, prepare func(*query)) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	deadline, _ := ctx.Deadline()
	err := c.checkBacklog()
	if err == nil {
		err = c.takeBack(l, deadline)
	}
	if err == nil {
		err = c.enqueue(l, asked, prepare)
	}
	if err == nil && asked.before != nil {
		err = c.send(l, asked.before, deadline)
		asked.said = err == nil
	}
	if err == nil {
		err = c.send(l, packet, deadline)
	}
	if err != nil {
		c.dequeue(asked)
	}
	return err
}

// enqueue appends a query to those without an answer.
func (c *Client) enqueue(l *link, asked *query, prepare func(*query)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link != l {
		return errGone
	}
	if prepare != nil {
		prepare(asked)
	}
	asked.published, asked.came = c.published, c.inbox.came
	c.asked = append(c.asked, asked)
	return nil
}

func (c *Client) checkBacklog() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting > backlogLimit {
		return &Error{Code: Backlog, Text: fmt.Sprintf("%d bytes of messages wait: receive them", c.waiting)}
	}
	return nil
}

// dequeue removes a query that was not sent.
func (c *Client) dequeue(asked *query) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = slices.DeleteFunc(c.asked, func(other *query) bool { return other == asked })
}

// patience gives ctx the deadline of Options.Timeout, if it has none.
func (c *Client) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, bounded := ctx.Deadline(); bounded {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.options.Timeout)
}

// overdue: ctx ended; if its caller did not want that any more, it is the caller's own error.
func overdue(ctx context.Context, code Code, text string) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return &Error{Code: code, Text: text, cause: ctx.Err()}
}
